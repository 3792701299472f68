"""Wheel and source archive built and checked, and each extra installed in an empty environment and used.

    python -m benchmarks.release [--only sim --only node,cli] [--keep FOLDER]

It needs a package index, and some 15 minutes. The two are left in ``dist``. Whatever does not hold is told at once, and
ends it with exit code 1 after all has been tried.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

from benchmarks import report
from tests import package_page

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
LIMIT = 1200  # seconds, of a command
TOOLS = ("build", "twine")
TREES = ("docs/index.md", "tests/oracles/wire.json", "examples/demo.py", "deploy/omkl-node@.service", "Makefile")
OWN = ("omkl/", "omkl_lab/", "omkl_start.py")
NEEDED = (
    "omkl/py.typed", "omkl/dashboard/static/index.html", "omkl/dashboard/static/app.js",
    "omkl/dashboard/static/style.css", "omkl/wire/FORMAT.md", "omkl/node/setup/network.toml.in",
    "omkl/node/setup/certificates.sh",
)  # fmt: skip
KINDS = (".py", ".typed", ".js", ".css", ".html", ".md", ".in", ".sh")  # of files in the wheel

ROWS = """
import numpy as np, omkl
rng = np.random.default_rng(0)
X = rng.normal(size=(1200, 2))
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
"""
LACKS = """
def lacks(extra, use):
    try:
        use()
    except omkl.MissingExtraError as error:
        assert f"pip install 'omkl[{extra}]'" in str(error), error
    else:
        raise AssertionError(f"nothing says that {extra} is missing")
"""


@dataclass(frozen=True)
class Use:
    """What is done with some extras: commands of a shell, in an empty folder, with the environment's programs first."""

    extras: str
    what: str
    python: str = ""
    shell: str = ""


USES = (
    Use("", "the core with NumPy alone; what is missing is named", ROWS + LACKS + """
assert omkl.__version__
print(omkl.testing.check_method(omkl.Local(features=6, eta=0.5)), omkl.explain("ring", 10).rho)
assert omkl.simulate((X[:600], y[:600]), "ring", nodes=5, method="paper").loss.shape == (1, 120)
lacks("sim", lambda: omkl.tune)
lacks("sim", lambda: __import__("omkl_lab.sweeps"))
lacks("sim", lambda: omkl.topology.erdos_renyi(9))
lacks("node", lambda: omkl.Node)
lacks("plot", lambda: omkl.plots.figure())
lacks("sklearn", lambda: omkl.sklearn)
lacks("river", lambda: omkl.river)
lacks("river", lambda: omkl.data.load("banana"))
lacks("sdp", lambda: omkl.topology.fdla(omkl.topology.ring(5)))
""", "omkl --version 2> said && exit 1; grep \"pip install 'omkl\\[cli\\]'\" said"),
    Use("cli", "omkl --version, --help, doctor, explain", shell="""
omkl --version && omkl --help > help && omkl doctor && omkl explain --topology ring --nodes 10
for command in 'dashboard dashboard' 'node cluster --nodes 3' 'river simulate --data banana --nodes 4'; do
    set -- $command; extra=$1; shift
    omkl "$@" 2> said && exit 1; grep "pip install 'omkl\\[$extra\\]'" said
done
"""),
    Use("sim", "a simulation of arrays, saved and loaded", ROWS + LACKS + """
result = omkl.simulate((X, y), "ring", nodes=5, seeds=2)
assert result.summary()["final_accuracy"] > 0.8, result
result.save("run")
assert np.array_equal(omkl.load("run").loss, result.loss)
assert omkl.simulate((X, y), omkl.topology.erdos_renyi(5), method=omkl.DOMKL()).loss.shape == (1, 240)  # by JAX
lacks("plot", lambda: result.plot())
from omkl_lab import sweeps
lacks("cluster", lambda: sweeps.sweep([omkl.Experiment(data=(X, y), nodes=4)], "s", cluster="tcp://127.0.0.1:1"))
"""),
    Use("sim,fast", "the same, compiled by Numba, without JAX in the process", ROWS + """
import sys
result = omkl.simulate((X, y), "ring", nodes=5, seeds=20)
assert result.summary()["final_accuracy"] > 0.8, result
assert "numba" in sys.modules and "jax" not in sys.modules
"""),
    Use("sim,results", "a sweep writes results.parquet", ROWS + """
from pathlib import Path
from omkl_lab import sweeps
if __name__ == "__main__":
    sweeps.sweep([omkl.Experiment(data=(X, y), nodes=4, topology="ring")], "s", jobs=1)
    assert Path("s/results.parquet").exists()
"""),
    Use("sim,cluster", "a sweep on a Dask cluster", ROWS + """
from dask.distributed import LocalCluster
from omkl_lab import sweeps
if __name__ == "__main__":
    with LocalCluster(n_workers=1, dashboard_address=None) as cluster:
        points = [omkl.Experiment(data=(X, y), nodes=4, topology="ring", seed=seed) for seed in (0, 1)]
        rows = sweeps.sweep(points, "s", cluster=cluster.scheduler_address)
    assert [row["failure"] for row in rows] == [None, None], rows
"""),
    Use("sim,plot", "result.plot()", ROWS + """
omkl.simulate((X, y), "ring", nodes=5).plot().figure.savefig("loss.png")
"""),
    Use("sdp", "the fastest weights of a graph", """
import omkl
topology = omkl.topology.build("path", 6, weights="fdla")
assert omkl.theory.spectral_gap(topology) > omkl.theory.spectral_gap(omkl.topology.build("path", 6))
"""),
    Use("sklearn", "a classifier and a regressor, saved and loaded", ROWS + """
from omkl.sklearn import OMKLClassifier, OMKLRegressor
learned = OMKLClassifier().fit(X[:800], y[:800])
assert learned.score(X[800:], y[800:]) > 0.9
learned.save("estimator.npz")
assert (OMKLClassifier.load("estimator.npz").predict(X) == learned.predict(X)).all()
assert OMKLRegressor().fit(X, X[:, 0] * X[:, 1]).score(X, X[:, 0] * X[:, 1]) > 0.9
"""),
    Use("river", "a classifier, row by row", """
from omkl.river import OMKLClassifier
from river import datasets, evaluate, metrics
assert evaluate.progressive_val_score(datasets.Bananas().take(2000), OMKLClassifier(), metrics.Accuracy()).get() > 0.8
"""),
    Use("node", "two nodes in a program, over TCP", ROWS + """
from omkl.node.setup.template import write
if __name__ == "__main__":
    network = write("network.toml", nodes=2, topology="path", port=17790, metrics="none")
    with omkl.Node.join("network.toml", "a") as a, omkl.Node.join("network.toml", "b") as b:
        for row in range(0, 600, 2):
            a.observe(X[row], y[row])
            b.observe(X[row + 1], y[row + 1])
        a.wait(60)
        b.wait(60)
        assert np.mean([a.predict(x) == truth for x, truth in zip(X[600:], y[600:])]) > 0.8
        assert a.status()["gossip_bytes"] > 0, a.status()
"""),
    Use("node,cli", "two daemons; a question to one of them", ROWS.replace("1200", "400") + """
for name, half in (("a", slice(0, None, 2)), ("b", slice(1, None, 2))):
    np.savetxt(f"{name}.csv", np.column_stack([X, y])[half], delimiter=",", header="u,v,y", comments="")
""", """
omkl node init --nodes 2 --topology path --port 17792 --metrics 127.0.0.1:17794 && omkl node check
for id in a b; do omkl node --network network.toml --id $id --input $id.csv --predictions > $id.jsonl & done
trap 'kill $(jobs -p)' EXIT
for try in $(seq 400); do [ $(cat a.jsonl b.jsonl | wc -l) = 400 ] && break; sleep 0.5; done
test $(cat a.jsonl b.jsonl | wc -l) = 400
omkl node predict --network network.toml --id a --x=1,1
"""),
    Use("dashboard", "the page and its scripts are served", """
import re, subprocess, urllib.parse, urllib.request
command = ["omkl", "dashboard", "--no-browser", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
    try:
        address = server.stderr.readline().split()[-1]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = opener.open(address, timeout=60).read().decode()
        wanted = [one for one in re.findall(r'(?:src|href)="([^"#]+)"', page) if not one.startswith("data:")]
        assert len(wanted) > 2, page
        for one in (*wanted, "/static/plotly.js"):
            assert opener.open(urllib.parse.urljoin(address, one), timeout=60).status == 200, one
    finally:
        server.terminate()
    assert server.wait(60) == 0
"""),
    Use("all", "omkl simulate, omkl doctor", shell="omkl simulate --data banana --nodes 20 --out run && omkl doctor"),
)  # fmt: skip


class Place:
    """An environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMKL"))
        }
        self.environment |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "VIRTUAL_ENV": str(folder), "COLUMNS": "120"}

    def make(self, *packages: str) -> tuple[float, float]:
        """Install packages; return the seconds that it took, and the MB beyond an empty environment."""
        start = time.perf_counter()
        if not (self.folder / "bin").exists():
            run([sys.executable, "-m", "venv", str(self.folder)])
        empty = size(self.folder)
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
        return time.perf_counter() - start, size(self.folder) - empty

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Return what a command prints."""
        return run(command, folder or ROOT, self.environment)


def run(command: Sequence[str], folder: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Return what a command prints; refuse one that fails."""
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if ran.returncode:
        raise AssertionError(f"{' '.join(command)[:200]}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def size(folder: Path) -> float:
    """Return the MB of the files below."""
    return sum(file.lstat().st_size for file in folder.rglob("*")) / 1e6


def build(folder: Path) -> tuple[Path, Path]:
    """Return a wheel and a source archive, in ``dist``: the wheel is built from the archive."""
    tools = Place(folder / "tools")
    tools.make(*TOOLS)
    shutil.rmtree(DIST, ignore_errors=True)
    tools.run("python", "-m", "build", "--outdir", str(DIST), ".")
    (wheel,), (archive,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    tools.run("python", "-m", "twine", "check", "--strict", str(wheel), str(archive))
    return wheel, archive


def faults(wheel: Path, archive: Path) -> Iterator[str]:
    """Yield what is wrong with what is in the two, and with what they say of themselves."""
    with zipfile.ZipFile(wheel) as packed:
        inside = packed.namelist()
        about = next(name for name in inside if name.endswith("METADATA"))
        told = message_from_string(packed.read(about).decode())
    yield from (f"the wheel lacks {name}" for name in NEEDED if name not in inside)
    if not any(name.endswith("licenses/LICENSE") for name in inside):
        yield "the wheel lacks the license"
    own = [name for name in inside if ".dist-info/" not in name]
    yield from (f"{name} is no part of a wheel" for name in own if not name.startswith(OWN))
    yield from (f"{name} is of a kind that has no place in a wheel" for name in own if not name.endswith(KINDS))
    for link in re.findall(r"\]\((?!https?:)([^)]*)\)", told.get_payload()):
        yield f"the description links to {link}, which a package index does not have"
    if told["Version"] != wheel.name.split("-")[1] or told["License-Expression"] != "BSD-3-Clause":
        yield f"the metadata say {told['Version']}, {told['License-Expression']}"
    with tarfile.open(archive) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    yield from (f"the source archive lacks {name}" for name in (*TREES, "CITATION.cff") if name not in held)


def use(one: Use, wheel: Path, folder: Path) -> report.Row:
    """Return what came of some extras: they are installed from the wheel and used."""
    place = Place(folder / (one.extras or "none"))
    seconds, added = place.make(f"{wheel}[{one.extras}]" if one.extras else str(wheel))
    with tempfile.TemporaryDirectory() as empty:
        if one.python:
            Path(empty, "use.py").write_text(one.python)
            place.run("python", "use.py", folder=Path(empty))
        if one.shell:
            place.run("bash", "-euc", one.shell, folder=Path(empty))
    return {
        "extras": one.extras or "none",
        "MB": round(added),
        "seconds to install": round(seconds),
        "used for": one.what,
    }


def own_package(wheel: Path, folder: Path) -> report.Row:
    """Return what came of the package of ``docs/extend/package.md``, which is installed and used as that page says."""
    place = Place(folder / "package")
    seconds, added = place.make(f"{wheel}[sim,cli,river]", "pytest")
    with tempfile.TemporaryDirectory() as empty:
        package_page.write(Path(empty))
        done = package_page.use(Path(empty), place.environment, install=True)
    return row("sim,cli,river", seconds, added, f"docs/extend/package.md: {len(done)} commands")


def from_archive(archive: Path, folder: Path) -> report.Row:
    """Return what came of the source archive, installed by itself."""
    place = Place(folder / "archive")
    seconds, added = place.make(str(archive))
    with tempfile.TemporaryDirectory() as empty:
        version = place.run("python", "-c", "import omkl; print(omkl.__version__)", folder=Path(empty)).strip()
    return row("", seconds, added, f"the source archive says {version}")


def row(extras: str, seconds: float, added: float, what: str) -> report.Row:
    """Return a line of the table."""
    return {"extras": extras or "none", "MB": round(added), "seconds to install": round(seconds), "used for": what}


def main() -> None:
    """Try all, print what came of each, and fail where something did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", help="these extras alone, as in 'node,cli'; 'none', 'archive', 'package'"
    )
    parser.add_argument("--keep", type=Path, help="keep the environments in this folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = (given.keep or Path(place)).resolve()
        wheel, archive = build(folder)
        broken = list(faults(wheel, archive))
        rows = list[report.Row]()
        tries = {one.extras or "none": lambda one=one: use(one, wheel, folder) for one in USES}
        tries |= {"archive": lambda: from_archive(archive, folder), "package": lambda: own_package(wheel, folder)}
        for name, attempt in tries.items():
            if given.only is None or name in given.only:
                print(name, file=sys.stderr, flush=True)
                try:
                    rows.append(attempt())
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    broken.append(f"{name}: {error}")
                    print(broken[-1], file=sys.stderr, flush=True)
        sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e6:.2f} MB" for file in (wheel, archive))
    report.finish("release", rows, f"{sizes}; MB and seconds are those of what is installed; {len(broken)} faults")
    sys.exit("\n".join(broken) or None)


if __name__ == "__main__":
    main()
