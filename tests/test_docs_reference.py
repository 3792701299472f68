"""The pages of ``docs/reference`` are those that the program as it is would give, and leave nothing out."""

import shlex
from collections.abc import Iterator
from dataclasses import make_dataclass
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest
from typer.main import get_command

from omkl.cli.app import app
from omkl.config import PARTS, File
from omkl.experiment import Experiment
from omkl.methods import METHODS, PRESETS, recommended
from omkl.node.config import FileKeys
from omkl.node.settings import Access, Calibration, Checkpoint, Member, Timing, Tls
from omkl.settings import settings
from omkl.topology import GRAPHS, WEIGHTS
from tests.doc_pages import ROOT

DRAW = ROOT / "docs" / "draw_reference.py"
ROOT_COMMAND: Any = get_command(app)
NETWORK = (FileKeys, Member, Timing, Checkpoint, Calibration, Access, Tls)


def drawing() -> Any:
    """Return the script that writes the pages."""
    spec = spec_from_file_location("draw_reference", DRAW)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWN = drawing()


def kept(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DRAWN.PAGES)
def test_a_page_is_what_the_program_says(name: str) -> None:
    assert kept(name) == DRAWN.PAGES[name](), "the program has changed; run: python docs/draw_reference.py"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command of ``omkl``, by its words."""
    for name, command in ROOT_COMMAND.commands.items():
        yield f"omkl {name}", command
        for inner, one in getattr(command, "commands", {}).items():
            yield f"omkl {name} {inner}", one


def part(text: str, heading: str) -> str:
    """Return the part of a page under a heading."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=lambda one: one if isinstance(one, str) else "")
def test_every_flag_is_there_and_every_example_is_one(words: str, command: Any) -> None:
    told = part(kept("command-line.md"), words)
    if "(#flags-of-a-method)" in told:
        told += part(kept("command-line.md"), "Flags of a method")
    flags = [flag for one in command.params for flag in [*one.opts, *one.secondary_opts] if flag.startswith("-")]
    assert [flag for flag in flags if f"`{flag}`" not in told and f"`{flag} " not in told] == []
    example: str = told.split("```text\n")[2].split("\n```")[0]
    for line in example.splitlines():
        typed = shlex.split(line)
        assert " ".join(typed[:2]) == words or line.startswith(words) or words == "omkl node inputs", line
        assert {flag for flag in typed if flag.startswith("--")} <= {*flags, "--calibration"}


@pytest.mark.parametrize("thing", NETWORK, ids=lambda one: one.__name__)
def test_every_key_of_a_network_is_told(thing: Any) -> None:
    for name, one in settings(thing).items():
        assert f"\n| `{name}` |" in kept("network-toml.md")
        assert one.doc, name


def test_every_key_of_a_spec_is_told() -> None:
    page = kept("spec-toml.md")
    for thing in (Experiment, File, recommended()):
        for name, one in settings(thing).items():
            assert f"\n| `{name}` |" in page, name
            assert one.doc, name
    registries: list[Any] = [GRAPHS, WEIGHTS, PRESETS, METHODS, *(choice.known for choice in PARTS.values())]
    for known in registries:
        assert [name for name in known if f'\n| `"{name}"` |' not in page] == []
    for choice in PARTS.values():
        for name, make in choice.known.items():
            assert [one.name for one in settings(make).values() if not one.doc] == [], name


def test_what_is_new_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    more = make_dataclass("More", [("volume", int, 11)], bases=(Timing,), frozen=True, kw_only=True)
    monkeypatch.setitem(DRAWN.TABLES, "timing", more)
    changed = set(DRAWN.PAGES["network-toml.md"]().splitlines()) - set(kept("network-toml.md").splitlines())
    assert [line for line in changed if line.startswith("| `")] == ["| `volume` | whole number | `11` |  |"]
    simulate = DRAWN.ROOT.commands["simulate"]
    monkeypatch.setattr(simulate, "params", [one for one in simulate.params if one.name != "seeds"])
    assert "`--seeds INT`" not in part(DRAWN.PAGES["command-line.md"](), "omkl simulate")


def test_texts_are_markdown() -> None:
    assert DRAWN.prose("a* |v|_1 < 2, ``x|y`` and --out") == r"a\* \|v\|\_1 \< 2, `x\|y` and `--out`"
    assert DRAWN.prose('node="a" in {"x": [1]} of omkl node init') == '`node="a"` in `{"x": [1]}` of `omkl node init`'
    assert DRAWN.kind(list[list[str]]) == "list of lists of texts"
    assert DRAWN.kind(int | None) == "whole number"
