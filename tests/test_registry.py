"""Names of other packages: found without importing them, imported when they are used."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omkl
from omkl import config
from omkl.cli.app import ADDED, COMMANDS, app, make_app
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.learners import LEARNERS
from omkl.methods import METHODS, Local, named
from omkl.online import files
from omkl.registry import Registry, added

PACKAGE = """
from dataclasses import dataclass
from typing import ClassVar
import omkl

@dataclass(frozen=True, init=False, repr=False)
class Mine(omkl.Local):
    name: ClassVar[str] = "mine"

def watch() -> None:
    print("watching")

@dataclass(frozen=True)
class Coarse(omkl.Nearest):
    name: ClassVar[str] = "coarse"
    step: float = 3.0

@dataclass(frozen=True)
class Slow(omkl.SGD):
    name: ClassVar[str] = "slow"

@dataclass(frozen=True)
class Rounded(omkl.Huber):
    name: ClassVar[str] = "rounded"

class Own(omkl.methods.Mixing):
    name: ClassVar[str] = "own"

def sinc(u):
    return 2 * u[..., 0] - 1

NUMBER = 7
"""
POINTS = """
[omkl.methods]
mine = my_package:Mine
gossip = my_package:Mine
gone = my_package:Gone
number = my_package:NUMBER

[omkl.quantizers]
coarse = my_package:Coarse
broken = no_such_package:broken

[omkl.learners]
slow = my_package:Slow
broken = no_such_package:broken

[omkl.losses]
rounded = my_package:Rounded
broken = no_such_package:broken

[omkl.kernels]
sinc = my_package:sinc
broken = no_such_package:broken

[omkl.mixing]
own = my_package:Own
broken = no_such_package:broken

[omkl.commands]
watch = my_package:watch
simulate = my_package:watch
broken = no_such_package:broken
number = my_package:NUMBER
"""


KIND: Any = omkl.Local
ANYTHING: Any = object()


class Stepless:
    """All of a learner but its step."""

    name, has_prior = "stepless", False

    def init(self, theta: object, spectrum: object = None) -> tuple[()]:
        return ()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package that adds a method and a command, tries to replace two, and has two that cannot be loaded."""
    (tmp_path / "my_package.py").write_text(PACKAGE)
    folder = tmp_path / "my_package-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    added.cache_clear()
    yield
    added.cache_clear()
    sys.modules.pop("my_package", None)


@pytest.mark.usefixtures("package")
def test_a_method_of_another_package_has_a_name() -> None:
    assert {"mine", "gone"} < set(METHODS)
    assert "my_package" not in sys.modules
    assert named("mine").name == "mine"
    assert config.experiment({"data": "banana", "method": {"name": "mine", "features": 7}}).method.bank.features == 7
    assert isinstance(named("mine"), Local)


FILE = """
data = "banana"
nodes = 3
[method]
name = "gossip"
quantizer = {name = "coarse", step = 4.0}
learner = "slow"
loss = {name = "rounded", delta = 0.5}
mixing = {name = "own", gamma = 0.5}
kernels = {sinc = [0.5], gaussian = [1.0]}
"""


@pytest.mark.usefixtures("package")
def test_parts_of_another_package_have_names_in_files_and_flags(tmp_path: Path) -> None:
    """A package that cannot be imported is in each list, and nothing minds before its name is used."""
    (tmp_path / "spec.toml").write_text(FILE)
    learned: Any = config.experiment(config.load(tmp_path / "spec.toml")).method
    parts = (learned.quantizer, learned.learner, learned.loss, learned.mixing)
    assert [part.name for part in parts] == ["coarse", "slow", "rounded", "own"]
    assert (learned.quantizer.step, learned.loss.delta, learned.gamma) == (4.0, 0.5, 0.5)
    assert [kernel.name for kernel in learned.kernels] == ["sinc", "gaussian"]
    assert omkl.Gossip(quantizer="coarse", learner="slow", loss="rounded").replace(gamma=0.1).learner.name == "slow"
    with pytest.raises(InputError, match="name what has: name = 'qsgd'"):  # looked for among omkl's own
        config.method({"quantizer": {"bits": 5}})


@pytest.mark.usefixtures("package")
def test_an_estimator_keeps_a_learner_of_another_package() -> None:
    slow = LEARNERS["slow"]
    assert files.setting(files.plain(slow())) == slow()
    assert files.plain(slow())["is"] == "omkl.learners:slow"


@pytest.mark.usefixtures("package")
def test_a_name_of_omkl_stays_its_own() -> None:
    assert METHODS["gossip"] is omkl.Gossip
    assert list(METHODS).count("gossip") == 1
    assert len(METHODS) == len(list(METHODS))
    assert {command.__name__ for command in COMMANDS} >= {"simulate"}


@pytest.mark.usefixtures("package")
def test_what_cannot_be_imported_is_told() -> None:
    with pytest.raises(InputError, match=r"'gone' is my_package:Gone of the package my-package, .*; update that"):
        named("gone")
    with pytest.raises(InputError, match=r"'number' is my_package:NUMBER .*, and 7; an entry point of omkl.m"):
        named("number")
    with pytest.raises(InputError, match=r"method.quantizer: 'broken' is no_such_package:broken of the"):
        config.method({"quantizer": "broken"})


@pytest.mark.usefixtures("package")
def test_a_command_of_another_package(capsys: pytest.CaptureFixture[str]) -> None:
    made = make_app()
    told = capsys.readouterr().err
    assert "omkl: warning: the command broken is left out: no_such_package:broken of another package cannot be" in told
    assert "omkl: warning: the command number is left out: my_package:NUMBER" in told
    assert CliRunner().invoke(made, ["watch"], prog_name="omkl").stdout == "watching\n"
    assert "Simulate a network" in CliRunner().invoke(made, ["simulate", "--help"], prog_name="omkl").stdout
    assert CliRunner().invoke(made, ["broken"], prog_name="omkl").exit_code == Exit.INPUT


def test_the_laboratory_is_such_a_package() -> None:
    assert set(added(ADDED)) == {"paper", "sweep", "torture", "tune"}
    assert METHODS["domkl"] is omkl.DOMKL
    assert METHODS["adaraker"] is omkl.AdaRaker
    assert "torture" in CliRunner().invoke(app, ["--help"], prog_name="omkl").stdout


def test_a_registry_without_entry_points() -> None:
    known = Registry("omkl.nothing", {"one": 1})
    assert dict(known) == {"one": 1} == known.own
    assert "two" not in known
    with pytest.raises(KeyError):
        known["two"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: omkl.simulate("banana", method=ANYTHING),
            "method is object, which lacks name, .*step, models; give a name",
        ),
        (
            lambda: omkl.simulate("banana", method=KIND),
            r"method is the class Local; .* pass Local\(\), or omkl.rec",
        ),
        (
            lambda: omkl.simulate("banana", quantizer=3),
            "quantizer is 3, which lacks name, [^;]*, size; give a name or an object such as",
        ),
        (lambda: omkl.Gossip(learner=omkl.SGD), r"learner is the class SGD; give a name or an object; pass SGD\(\)"),
        (
            lambda: omkl.Gossip(learner=Stepless()),
            "learner is Stepless, which lacks update; a learner has name, has_",
        ),
        (lambda: omkl.Gossip(learner="newtn"), "unknown learner 'newtn'; did you mean 'newton'"),
        (lambda: omkl.Gossip(loss=len), "loss is builtin_function_or_method, which lacks name, smoothness, lipschitz"),
        (lambda: omkl.Gossip(sending=1.5), "sending is 1.5, which lacks name, .*, or None to send all"),
    ],
)
def test_what_is_no_such_thing_is_told_by_what_it_lacks(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_a_learner_by_name() -> None:
    assert omkl.Gossip(learner="newton").learner == omkl.Newton()
