import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.table import Table
from typer.testing import CliRunner, Result

import omkl
from omkl import cli
from omkl.cli import doctor, show
from omkl.cli.app import app
from omkl.cli.exits import MEANINGS, Exit
from omkl.data import Status
from omkl.errors import MissingExtraError

SPEC = """
data = {file = "t.csv", target = "y"}
topology = "ring"
nodes = 3
seeds = 2
[method]
name = "gossip"
kernels = {gaussian = [1, 2]}
features = 4
eta = 0.5
gamma = 0.2
quantizer = {name = "qsgd", bits = 4}
"""
FLAGS = shlex.split(
    "--topology ring --nodes 3 --seeds 2 --method gossip --kernels gaussian:1,2 --features 4 --eta 0.5 --gamma 0.2"
    " --quantizer qsgd --bits 4"
)


def run(*args: Any) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="omkl")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).standard_normal((12, 2))
    lines = [f"{a},{b},{1 if a > 0 else -1}\n" for a, b in rows.tolist()]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(lines))
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path / "spec.toml"


def as_json(result: Result) -> Any:
    assert result.exit_code == Exit.OK, result.stderr
    return json.loads(result.stdout)


def test_file_flags_and_python_agree(spec: Path) -> None:
    table = spec.parent / "t.csv"
    method = omkl.Gossip(kernels=omkl.gaussian(1, 2), features=4, eta=0.5, gamma=0.2, quantizer=omkl.QSGD(bits=4))
    expected = omkl.simulate(table, "ring", 3, method, target="y", seeds=2).summary()
    from_file = as_json(run("simulate", spec, "--format", "json"))
    from_flags = as_json(run("simulate", "--data", f'{{file="{table}", target="y"}}', *FLAGS, "--format", "json"))
    assert from_file == from_flags
    assert from_file["summary"] == expected
    assert from_file["config"]["method"]["quantizer"] == {"name": "qsgd", "bits": 4, "rescale": False, "block": None}


@pytest.mark.parametrize("twice", [["--drop", "b", "--drop", "c"], ["--drop", "b,c"], ["--use", "a", "--use", "d"]])
def test_columns_named_one_by_one_add_up(tmp_path: Path, twice: list[str]) -> None:
    lines = [f"{a},{2 * a},{3 * a},{a % 7},{a % 5}\n" for a in range(12)]
    (tmp_path / "t.csv").write_text("a,b,c,d,y\n" + "".join(lines))
    flags = ["--data", tmp_path / "t.csv", "--target", "y", "--nodes", 2, "--quiet", "--format", "json"]
    config = as_json(run("simulate", *flags, *twice))["config"]
    assert [one["name"] for one in config["data"]["table"]["columns"]] == ["a", "d"]
    several = as_json(run("simulate", *flags, "--drop", "b", "--drop", "c", "--target", "d"))["config"]
    assert several["data"]["table"]["target"] == ["y", "d"]


def test_flags_override_the_file(spec: Path) -> None:
    config = as_json(run("simulate", spec, "--bits", 5, "--seeds", 1, "--format", "json"))["config"]
    assert (config["seeds"], config["nodes"], config["method"]["quantizer"]["bits"]) == (1, 3, 5)


def test_faults_from_flags_and_file(spec: Path) -> None:
    chances = as_json(run("simulate", spec, "--faults", "{links=0.4, nodes=0.1}", "--format", "json", "--quiet"))
    assert chances["config"]["faults"] == {"name": "faults", "links": 0.4, "nodes": 0.1}
    plain = as_json(run("simulate", spec, "--format", "json", "--quiet"))
    assert chances["summary"]["bits_per_node_round"] < plain["summary"]["bits_per_node_round"]
    spec.write_text(SPEC + "[faults]\nlinks = 0.4\nnodes = 0.1\n")
    assert as_json(run("simulate", spec, "--format", "json", "--quiet")) == chances
    turns = run("simulate", spec, "--topology", '{graphs=["ring", "path"]}', "--quiet")
    assert "schedule of 3 nodes" in turns.stdout


def test_table_of_one_seed_and_what_is_saved(spec: Path, tmp_path: Path) -> None:
    result = run("simulate", spec, "--seeds", 1, "--method", "local", "--out", tmp_path / "new" / "run")
    assert result.exit_code == Exit.OK
    assert result.stdout.startswith(
        "local, kernels=gaussian(1, 2), features=4, eta=0.5 on a table (t.csv): ring of 3 nodes"
    )
    assert "±" not in result.stdout
    assert f"{omkl.load(tmp_path / 'new' / 'run').summary()['loss']:.4f}" in result.stdout
    assert result.stderr == "omkl: t.csv: inputs: a, b\n"  # and no size of so small a run
    assert run("simulate", spec, "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--eta", "-1"], "omkl: error: method.eta: eta is -1.0; a learning rate must be positive"),
        (
            ["--quantizer", '{name="qsgd", bitz=3}'],
            "omkl: error: method.quantizer.bitz: unknown key; did you mean 'bits'?",
        ),
        (["--topology", "rng"], "omkl: error: topology: unknown topology 'rng'; did you mean 'ring'?"),
        (["--nodes", "13"], "omkl: error: nodes is 13; it must be a whole number from 1 to the 12 rows"),
        (["--out", "/dev/null/x"], "omkl: error: [Errno"),
    ],
)
def test_bad_input_is_one_line(spec: Path, flags: list[str], message: str) -> None:
    result = run("simulate", spec, *flags)
    assert result.exit_code == Exit.INPUT
    assert result.stdout == ""
    *told, error = result.stderr.splitlines()
    assert error.startswith(message)
    assert told in ([], ["omkl: t.csv: inputs: a, b"])


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        (["--forget", "0.99"], """--learner '{name="pooled", forget=0.99}'"""),
        (["--alpha=.3"], """--partition '{name="dirichlet", alpha=0.3}'"""),
        (["--radius", "0.4"], """--topology '{name="geometric", radius=0.4}'"""),
        (["--links", "0.1"], "--faults '{links=0.1}'"),
        (["--source", "labelled"], """--basis '{name="landmarks", source="labelled"}'"""),
    ],
)
def test_a_setting_of_a_part_is_answered_with_how_to_write_it(spec: Path, flags: list[str], remedy: str) -> None:
    name = flags[0].partition("=")[0]
    told = f"omkl: error: No such option: {name}; it is a setting of a part: {remedy}; see "
    assert run("simulate", spec, *flags).stderr.startswith(told)
    (flag, value) = shlex.split(remedy)
    assert run("simulate", spec, "--method", "recommended", flag, value, "--rounds", 1).exit_code in (
        Exit.OK,
        Exit.INPUT,
    )


def test_flags_of_no_part_are_unknown(spec: Path) -> None:
    assert "part" not in run("simulate", spec, "--bogus", "3").stderr
    assert "part" not in run("data", "--forget", "3").stderr  # it has no such parts


@pytest.mark.parametrize(
    ("flag", "value", "meant"),
    [
        ("--basis", "{source=labelled}", """'{source="labelled"}'"""),
        ("--topology", "{graphs=[ring, star]}", """'{graphs=["ring", "star"]}'"""),
        ("--learner", "{name=pooled, forget=0.99}", """'{name="pooled", forget=0.99}'"""),
    ],
)
def test_quotes_that_the_shell_took_are_given_back(spec: Path, flag: str, value: str, meant: str) -> None:
    told = run("simulate", spec, flag, value).stderr
    assert told.endswith(f"the shell takes double quotes away; put the value in single quotes: {flag} {meant}\n")


def test_a_pipe_that_nobody_reads_ends_a_command_silently() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    for command in (["explain"], ["data"]):
        ended = subprocess.run([sys.executable, "-m", "omkl.cli", *command], stdout=theirs, stderr=subprocess.PIPE)
        assert (ended.returncode, ended.stderr) == (Exit.UNREAD, b"")
    os.close(theirs)


def test_standardized_inputs(spec: Path) -> None:
    result = run("simulate", spec, "--standardize", "--format", "json", "--quiet")
    assert json.loads(result.stdout)["config"]["standardize"] is True


@pytest.mark.parametrize(
    "args", [["simulate", "--bogus"], ["simulate", "no.toml"], ["simulate", "--eta", "x"], ["smulate"]]
)
def test_bad_usage(args: list[str]) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (Exit.INPUT, "")


def test_a_run_that_diverges(spec: Path) -> None:
    result = run("simulate", spec, "--eta", 1e30, "--regularization", 1, "--quantizer", "exact", "--quiet")
    assert result.exit_code == Exit.DIVERGED
    assert result.stderr.startswith("omkl: error: the loss is ")


def test_missing_sim_extra() -> None:
    command = (
        "import sys; sys.modules['jax'] = None; from omkl.cli import main\n"
        "sys.argv = ['omkl', 'simulate', '--data', 'banana', '--nodes', '20', *sys.argv[1:]]; main()"
    )
    assert program(command).returncode == Exit.OK  # NumPy or the compiled loops serve
    result = program(command, "--method", "complete", "--topology", "complete", "--seeds", "60")
    assert (result.returncode, result.stdout) == (Exit.MISSING, "")
    *_, last = result.stderr.splitlines()
    assert last == "omkl: error: jax is not installed; this needs it; run: pip install 'omkl[sim]'"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, spec: Path) -> None:
    monkeypatch.setattr(omkl.Experiment, "run", lambda *_: 1 / 0)
    result = run("simulate", spec)
    assert result.exit_code == Exit.UNEXPECTED
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(spec: Path) -> None:
    result = run("simulate", spec, "--kernels", "gaussian:0.001", "--quiet")
    assert result.exit_code == Exit.OK
    assert result.stderr.startswith("omkl: warning: a typical input has length")


@pytest.mark.parametrize("package", ["typer", "rich", "pydantic"])
def test_missing_cli_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == Exit.MISSING
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"omkl: error: {package} is not installed; this needs it; run: pip install 'omkl[cli]'\n"


def program(script: str, *flags: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", script, *flags], capture_output=True, text=True)


def test_help_imports_no_jax_and_lists_exit_codes() -> None:
    result = program(
        "import sys; from omkl.cli import main; sys.argv = ['omkl', '--help']\n"
        "try:\n    main()\nfinally:\n    assert 'jax' not in sys.modules"
    )
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    text = " ".join(result.stdout.split())
    assert all(f"{code:d} {MEANINGS[code]}" in text for code in Exit)


def test_control_c() -> None:
    result = program(
        "import os, signal, sys, omkl; from omkl.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "omkl.Experiment.run = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['omkl', 'simulate', '--data', 'banana', '--nodes', '3']; main()"
    )
    assert (result.returncode, result.stdout, result.stderr) == (Exit.INTERRUPTED, "", "omkl: interrupted\n")


@pytest.mark.parametrize("module", ["omkl", "numpy", "omkl.cli.app"])
def test_control_c_while_it_loads(module: str) -> None:
    entry = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]["omkl"]
    result = program(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job in the background ignores it
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.meta_path.insert(0, Finder()); from {entry.replace(':', ' import ')}; main()"
    )
    assert (result.returncode, result.stdout, result.stderr) == (Exit.INTERRUPTED, "", "")


@pytest.mark.parametrize(
    "command", [[], ["simulate"], ["paper"], ["sweep"], ["tune"], ["explain"], ["data"], ["doctor"], ["torture"]]
)
def test_every_help_has_an_example(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == Exit.OK
    assert "Example: omkl" in result.stdout


def test_version() -> None:
    assert run("--version").stdout == f"omkl {importlib.metadata.version('omkl')}\n"


def test_explain_is_the_page_of_the_theory() -> None:
    flags = shlex.split(
        "--method paper --topology star --nodes 7 --quantizer nearest --features 5 --kernels cauchy:1,2 --rounds 50"
    )
    page = omkl.explain("star", 7, method="paper", quantizer=omkl.Nearest(), features=5, kernels=2, rounds=50)
    assert run("explain", *flags).stdout == f"{page}\n"
    found = as_json(run("explain", *flags, "--format", "json"))
    assert (found["rho"], found["regret"], found["vacuous"]) == (page.rho, page.terms.total, page.vacuous)
    assert found["terms"] == page.terms._asdict()


def test_explain_of_a_preset() -> None:
    best = omkl.recommended()
    page = as_json(run("explain", "--nodes", 5, "--format", "json"))
    assert (page["delta"], page["regret"]) == (best.channel.quantizer.delta(best.sent), None)
    assert page["beyond"] == ["basis", "learner", "common_weights", "reach", "momentum", "pace"]
    told = run("explain", "--nodes", 5).stdout
    assert "the theory does not cover a basis, a learner other than plain gradient steps, kernel weights that" in told
    assert "steps that count for several nodes, momentum, a pace of gossip." in told
    assert "the largest step with a proof that nodes agree without momentum; with it no step has one\n" in told
    assert "what gossip costs has no bound at this step\n" in told
    assert "at most gamma*: no proof with momentum\n" in told  # neither clipping nor sending, which are off
    assert run("explain", "--nodes", 5).stdout == f"{omkl.explain('path', 5)}\n"
    assert run("explain", "--nodes", 5).stdout.startswith(
        "Nothing is proved about whether these nodes agree; by the graph, disagreement halves in about "
    )
    paper = f"{omkl.explain('path', 5, method='paper')}\n"
    assert run("explain", "--nodes", 5, "--method", "paper").stdout == paper
    rate = run("explain", "--nodes", 5, "--method", "paper", "--learner", "{name='sgd', eta=0.1}").stdout
    assert rate == run("explain", "--nodes", 5, "--method", "paper", "--eta", 0.1).stdout


@pytest.mark.parametrize("method", [None, "paper"])
def test_explain_in_python_changes_the_method_as_flags_do(method: str | None) -> None:
    flags = ("--gamma", 0.2, "--quantizer", "nearest", "--step", 2.5, "--topology", "ring", "--nodes", 10)
    named = () if method is None else ("--method", method)
    page = omkl.explain("ring", 10, method=method, gamma=0.2, quantizer=omkl.Nearest(2.5))
    assert run("explain", *flags, *named).stdout == f"{page}\n"


def test_explain_names_the_methods_that_it_takes() -> None:
    rule = "the theory is of gossip; take recommended, frugal, paper or gossip"
    assert rule in run("explain", "--method", "alone").stderr
    with pytest.raises(omkl.InputError, match=rule):
        omkl.explain("path", 5, method="alone")


def test_explain_of_a_quantizer_that_is_no_contraction() -> None:
    result = run("explain", "--nodes", 5, "--method", "paper", "--bits", 1)
    assert result.exit_code == Exit.OK
    assert "NO       the quantizer is a contraction" in result.stdout
    assert result.stdout.startswith("A simulation refuses this setting: delta is -5.35 and must be positive, or gossip")
    assert "halves" not in result.stdout
    assert "auto" not in result.stdout


def test_explain_of_a_step_at_which_nodes_drift_apart() -> None:
    flags = ("explain", "--topology", "grid", "--nodes", 16)
    told = run(*flags, "--gamma", 1).stdout
    assert told.startswith("gamma = 1 is too large: in a trial of 600 rounds without samples these nodes drifted apart")
    assert "you have" not in told  # nobody said how many rounds there are
    few = run(*flags, "--gamma", 1, "--rounds", 125).stdout
    assert "a trial of 600 rounds without samples these nodes drifted apart (you have 125 rounds); take a" in few
    assert "you have" not in run(*flags, "--gamma", 1, "--rounds", 600).stdout
    assert told.count("drifted apart") == 2  # in the line of the step too
    assert "halves" not in told
    assert as_json(run(*flags, "--gamma", 1, "--format", "json"))["drifts"] is True
    for stable in ((), ("--gamma", "auto")):
        assert as_json(run(*flags, *stable, "--format", "json"))["drifts"] is False
        assert "; nodes stayed together in a trial of 600 rounds without samples\n" in run(*flags, *stable).stdout
    assert as_json(run(*flags, "--gamma", 1, "--clip", 0.1, "--format", "json"))["drifts"] is None
    assert "no proof with momentum, clipping\n" in run(*flags, "--clip", 0.1).stdout


def test_explain_takes_the_file_of_a_simulation(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'data = "banana"\ntopology = "star"\nnodes = 10\nseeds = 2\n[method]\nname = "gossip"\nfeatures = 5\n'
        'kernels = {gaussian = [1, 3]}\ngamma = 0.3\n[method.quantizer]\nname = "nearest"\nstep = 2.0\n'
    )
    method = omkl.Gossip(kernels=omkl.gaussian(1, 3), features=5, gamma=0.3, quantizer=omkl.Nearest(2.0))
    page = omkl.explain("star", 10, method=method, rounds=530)
    assert run("explain", spec).stdout == f"{page}\n"
    flags = ("--gamma", 0.2, "--step", 2.5, "--rounds", 70, "--nodes", 7, "--topology", "ring")
    changed = method.replace(gamma=0.2, quantizer=omkl.Nearest(2.5))
    assert run("explain", spec, *flags).stdout == f"{omkl.explain('ring', 7, method=changed, rounds=70)}\n"
    paper = omkl.explain("star", 10, method="paper", rounds=530)
    assert run("explain", spec, "--method", "paper").stdout == f"{paper}\n"
    spec.write_text('data = "energy_like"\nnode = 4\n')
    assert run("explain", spec).exit_code == Exit.INPUT


def test_explain_counts_the_rounds_and_nodes_of_a_table(tmp_path: Path) -> None:
    rows = [f"{k},{k % 7},{'ab'[k % 3 == 0]},{k % 5 / 3}" for k in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["when,x,room,y", *rows]))
    (tmp_path / "spec.toml").write_text('data = "rows.csv"\ntarget = "y"\nnode = "room"\n')
    told = run("explain", tmp_path / "spec.toml")
    assert told.stdout == f"{omkl.explain('path', 2, method=omkl.recommended(loss='squared'), rounds=10)}\n"
    assert told.stderr == ""
    assert "; you have 10 rounds" in told.stdout
    assert "; you have 7 rounds" in run("explain", tmp_path / "spec.toml", "--rounds", 7).stdout
    (tmp_path / "spec.toml").write_text('data = "rows.csv"\ntarget = "y"\n')
    assert "; you have 5 rounds" in run("explain", tmp_path / "spec.toml", "--nodes", 6).stdout
    assert "; 1,000 rounds assumed (--rounds, rounds=)" in run("explain", "--nodes", 6).stdout


@pytest.mark.filterwarnings("default")
def test_a_run_whose_nodes_drift_apart_says_so() -> None:
    flags = shlex.split(
        "simulate --data banana --nodes 20 --rounds 100 --quiet --method gossip --kernels gaussian:1 --eta 1 "
        "--gamma 0.5 --quantizer nearest --step 2.5"
    )
    (told,) = run(*flags, "--momentum", 0.8).stderr.splitlines()
    assert re.search(r"disagreement grew from \S+ to \S+, and the final loss is \S+ where guessing has 0\.69: ", told)
    assert told.endswith('take a gamma below 0.5, or "auto"')
    assert run(*flags).stderr == ""
    coarse = run(*shlex.split("simulate --data banana --nodes 20 --rounds 100 --quiet --quantizer topk"))
    assert coarse.stderr.endswith('take a gamma below 0.6, or "auto"\n')
    assert "hint" not in coarse.stdout  # to forget helps if the data drift, and nodes did


def test_explain_without_nodes() -> None:
    assert run("explain").stdout == run("explain", "--topology", "path", "--nodes", 20).stdout
    assert "Network: 20 nodes, 19 links" in run("explain", "--topology", "star").stdout
    assert "Network: 2 nodes, 1 links" in run("explain", "--topology", '{name="star"}', "--nodes", 2).stdout


def test_explain_of_a_graph_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("a,b\nb,c\n")
    assert "Network: 3 nodes, 2 links" in run("explain", "--topology", tmp_path / "g.csv").stdout
    wrong = run("explain", "--topology", tmp_path / "g.csv", "--nodes", 4)
    assert (wrong.exit_code, "nodes=4 for a topology of 3 nodes" in wrong.stderr) == (Exit.INPUT, True)


def test_a_result_is_not_replaced_by_accident(spec: Path, tmp_path: Path) -> None:
    flags = ("simulate", spec, "--quiet", "--out", tmp_path / "run")
    assert run(*flags, "--events").exit_code == Exit.OK
    before = (tmp_path / "run" / "final.npz").read_bytes()
    again = run(*flags, "--seed", 3)
    assert (again.exit_code, again.stdout) == (Exit.INPUT, "")
    assert again.stderr == (
        f"omkl: error: {tmp_path / 'run'} holds a result already; it is kept; give another --out, or add --overwrite\n"
    )
    assert (tmp_path / "run" / "final.npz").read_bytes() == before
    assert (tmp_path / "run" / "events.jsonl").exists()
    assert run(*flags, "--seed", 3, "--overwrite").exit_code == Exit.OK
    assert omkl.load(tmp_path / "run").config["seed"] == 3
    assert not (tmp_path / "run" / "events.jsonl").exists()  # they were of the result before


def test_page_hangs_long_lines_under_their_last_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(show, "PIPE_WIDTH", 24)
    show.print_page("Head\n\n  rho  0.5  a long description")
    assert capsys.readouterr().out == "Head\n\n  rho  0.5  a long\n            description\n"


STATUSES = [
    Status("here", "binary", 5300, 2, "CC BY 4.0", "someone", "/data/here", True, "", {}),
    Status("gone", "binary", 10, 3, "none", "someone", None, False, "pip install 'omkl[river]'", {}),
    Status("bad", "binary", 10, 3, "none", "someone", "/data/bad", False, "it has another sha256", {}),
]


def test_a_pipe_gets_no_spaces_at_the_ends_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    page = Table.grid(expand=True)
    page.add_row("a", "")
    page.add_row("and a longer one", "x")
    show.console().print(page, "end [of]")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line and line == line.rstrip() for line in lines)


def test_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omkl.data, "inventory", lambda: STATUSES)
    text = run("data").stdout
    for part in ("5,300", "verified", "missing", "wrong", "pip install 'omkl[river]'", "/data/here", "another sha256"):
        assert part in text
    assert as_json(run("data", "--format", "json")) == [status._asdict() for status in STATUSES]


def test_doctor_says_what_jax_keeps_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "inventory", lambda: STATUSES)
    version = doctor._version
    assert "what JAX compiles is" in run("doctor").stdout
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "jax" else version(package))
    found = run("doctor").stdout
    assert "JAX is not installed" in found
    assert "JAX compiles" not in found


def test_doctor_finds_it_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "inventory", lambda: STATUSES)
    found = as_json(run("doctor", "--format", "json"))
    assert found["works"]
    assert re.fullmatch(
        r"a simulation of 3 nodes ran in .* s, with (JAX|NumPy; longer ones run with .*)", found["verdict"]
    )
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    assert "omkl[sim]" in doctor._engines() or doctor._engines() == "JAX"
    assert found["packages"]["core"] == {"numpy": np.__version__}
    assert set(found["packages"]["cli"]) == {"typer", "rich", "pydantic"}
    assert found["data"] == {"here": "/data/here", "gone": None, "bad": "/data/bad"}


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (
            MissingExtraError("jax", "sim"),
            Exit.MISSING,
            "broken: jax is not installed; this needs it; run: pip install 'omkl[sim]'",
        ),
        (
            RuntimeError("[no] backend"),
            Exit.UNEXPECTED,
            "broken: a simulation of 3 nodes failed: RuntimeError: [no] backend",
        ),
    ],
)
def test_doctor_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch, error: Exception, code: Exit, says: str) -> None:
    def simulate(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(doctor, "inventory", lambda: STATUSES)
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "cvxpy" else "1.0")
    monkeypatch.setattr(omkl, "simulate", simulate, raising=False)
    result = run("doctor")
    assert result.exit_code == code
    assert says in result.stdout
    assert "missing: cvxpy; pip install 'omkl[sdp]'" in result.stdout


def test_json_has_null_for_what_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    show.print_json({"a": [float("nan"), 1.5], "b": (float("inf"),)})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.5], "b": [None]}


def test_progress_lines_come_late_and_few(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    with show.progress(quiet=False) as report:
        assert report
        for done in range(1, 101):
            report(done, 100)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split()[2] for line in captured.err.splitlines()] == ["2", "4", "8", "16", "32", "64"]
    assert captured.err.splitlines()[4] == "omkl: simulating, 32 of 100, 32 s, about 68 s left"


def test_progress_promises_nothing_while_it_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first rounds wait for the compiler: by them, 500 rounds would take 2,000 s."""
    clock = iter([0.0, 4.0, 4.5, 9.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with show.progress(quiet=False) as report:
        assert report
        for done in (1, 2, 101):
            report(done, 500)
    assert capsys.readouterr().err.splitlines() == [
        "omkl: simulating, 1 of 500, 4 s",
        "omkl: simulating, 101 of 500, 9 s, about 20 s left",
    ]


def test_quiet_has_no_progress() -> None:
    with show.progress(quiet=True) as report:
        assert report is None
