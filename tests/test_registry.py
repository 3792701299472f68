"""Names of other packages: found without importing them, imported when they are used."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import omkl
from omkl import config
from omkl.cli.app import ADDED, COMMANDS, app, make_app
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.methods import METHODS, Local, named
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

NUMBER = 7
"""
POINTS = """
[omkl.methods]
mine = my_package:Mine
gossip = my_package:Mine
gone = my_package:Gone

[omkl.commands]
watch = my_package:watch
simulate = my_package:watch
broken = no_such_package:broken
number = my_package:NUMBER
"""


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


@pytest.mark.usefixtures("package")
def test_a_name_of_omkl_stays_its_own() -> None:
    assert METHODS["gossip"] is omkl.Gossip
    assert list(METHODS).count("gossip") == 1
    assert len(METHODS) == len(list(METHODS))
    assert {command.__name__ for command in COMMANDS} >= {"simulate"}


@pytest.mark.usefixtures("package")
def test_what_cannot_be_imported_is_told() -> None:
    with pytest.raises(InputError, match=r"'gone' is my_package:Gone of another package, .*; mend that package"):
        named("gone")


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
