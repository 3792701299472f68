# Two commands on a fresh machine: `make demo` and `make test`. They need python3 (3.11 or newer) and make.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(if $(shell command -v uv 2>/dev/null),uv pip install --quiet --python $(BIN)/python,$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check)
ifneq ($(wildcard ../shared/data),)
export OMKL_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test check docs alerts torture faults slow bench bench-network bench-device bench-scale kills release-check fmt clean

# It installs only what it shows, in less than a minute; `make test` adds the rest.
demo: $(if $(wildcard .venv/.installed),.venv/.installed,.venv/.demo)
	@$(BIN)/python examples/demo.py out/demo

# Three processes, a file of tests in one of them: some tests wait for real nodes, and leave a core idle.
test: check
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

check: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, into out/docs; warnings are errors. Tests run what the pages show.
docs: .venv/.installed
	$(BIN)/sphinx-build -W --keep-going -n -q docs out/docs
	@echo out/docs/index.html

# The alerts, their tests and the scrape file, by Prometheus's own tool; it is in Debian's package prometheus.
alerts:
	@command -v promtool >/dev/null || { echo "make alerts needs promtool: apt-get install prometheus"; exit 2; }
	promtool check config deploy/prometheus/prometheus.yml
	cd deploy/prometheus && promtool test rules omkl.test.yml

# Five minutes or so on two cores, of seeds that nobody has tried.
torture: .venv/.installed
	$(BIN)/omkl torture --seed $$(date +%s)000 --seeds 2500

# Real processes, killed and cut off, on a larger scale than in the tests: minutes.
faults: .venv/.installed
	$(BIN)/python -m pytest tests/test_real_faults.py -m "slow or not slow"

# All that the tests leave out as slow, those of faults included: what they do on a smaller scale, and 200 frozen seeds.
slow: .venv/.installed
	$(BIN)/python -m pytest -m slow

# The default method first, then the paper's preset; minutes.
bench: .venv/.installed
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.compile

bench-network: .venv/.installed
	$(BIN)/python -m benchmarks.wire
	$(BIN)/python -m benchmarks.network round
	$(BIN)/python -m benchmarks.network ring

bench-device: .venv/.installed
	$(BIN)/python -m benchmarks.device

bench-scale: .venv/.installed
	$(BIN)/python -m benchmarks.scale

# Half an hour of kill -9 on twenty nodes, and what is left of what they acknowledged.
kills: .venv/.installed
	$(BIN)/python -m benchmarks.endure

# The wheel, the source archive, and each extra in an environment of its own: what CONTRIBUTING.md has before a release.
release-check: .venv/.installed
	$(BIN)/python -m benchmarks.release

fmt: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.venv/.demo: pyproject.toml
	@echo "Installing into .venv: about half a minute."
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --editable ".[sim,fast,cli,plot,dashboard,river]"
	@touch $@

# The stamp is made last, so an interrupted install is taken up again.
.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable ".[all,docs,test]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
