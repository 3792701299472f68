"""Command lines and files are taken and refused as they were: see ``tests/oracles/commands.toml``."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omkl.cli.exits import Exit
from tests.oracles import commands
from tests.oracles.commands import Case, Outcome, differences

CASES = commands.cases()
REFUSAL = next(case for case in CASES if case.name == "simulate without data")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_ends_as_it_did(case: Case, tmp_path: Path) -> None:
    outcome = commands.run(case, tmp_path)
    assert not differences(case, outcome), outcome.stderr or outcome.stdout


def test_exit_codes_are_the_numbers_that_they_were() -> None:
    """Services are told by number which ends are for good: see ``deploy/omkl-node@.service``."""
    known = {"OK": 0, "UNEXPECTED": 1, "INPUT": 2, "MISSING": 3, "DIVERGED": 4, "DISK": 5, "INTERRUPTED": 130}
    known["UNREAD"] = 141
    assert {code.name: int(code) for code in Exit} == known


def test_names_are_unique() -> None:
    assert not [name for name, count in Counter(case.name for case in CASES).items() if count > 1]


def test_another_exit_code_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert differences(REFUSAL, commands.run(REFUSAL, tmp_path)) == []
    planted = SimpleNamespace(INPUT=Exit.UNEXPECTED, MISSING=Exit.MISSING, DIVERGED=Exit.DIVERGED)
    monkeypatch.setattr("omkl.cli.app.Exit", planted)
    assert differences(REFUSAL, commands.run(REFUSAL, tmp_path)) == ["exit code 1; 2 is frozen"]


def test_a_crash_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("omkl.config.experiment", lambda table: table["data"])
    outcome = commands.run(REFUSAL, tmp_path)
    assert "KeyError" in outcome.stderr
    assert differences(REFUSAL, outcome)[0] == "exit code 1; 2 is frozen"


@pytest.mark.parametrize(
    ("outcome", "difference"),
    [
        (Outcome(2, "", "omkl: error: it is missing\n"), "'data' is not in"),
        (Outcome(2, "", "omkl: error: data is missing;\ngive it\n"), "not one line"),
        (Outcome(2, "", "Usage: omkl\nNo data\n"), "not one line"),
        (Outcome(2, "begins\n", "omkl: error: data is missing\n"), "not one line"),
    ],
)
def test_what_else_is_frozen(outcome: Outcome, difference: str) -> None:
    (found,) = differences(REFUSAL, outcome)
    assert difference in found


def test_better_words_are_taken() -> None:
    other = "omkl: error: give --data, or a file with data in it\n"
    assert differences(REFUSAL, Outcome(2, "", other)) == []
    assert differences(replace(REFUSAL, says=["weight_rate"]), Outcome(2, "", "omkl: error: --weight-rate -1\n")) == []


def test_only_exit_codes_are_frozen_anew() -> None:
    text = commands.CORPUS.read_text(encoding="utf-8")
    codes = [case.exit for case in CASES]
    assert commands._recoded(text, codes) == text
    changed = commands._recoded(text, [*codes[:-1], 7]).splitlines()
    assert [line for old, line in zip(text.splitlines(), changed, strict=True) if old != line] == ["exit = 7"]


def flags(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words of every command and each of its flags."""
    for option in command.params:
        yield from ((path, flag) for flag in (*option.opts, *option.secondary_opts) if flag.startswith("--"))
    for name, inner in getattr(command, "commands", {}).items():
        yield from flags(inner, (*path, name))


def test_every_flag_of_every_command_is_in_the_corpus() -> None:
    known = list(flags(commands._command()))
    assert len(known) > 150
    args = [case.args for case in CASES]
    assert not [
        (path, flag) for path, flag in known if not any(flag in a and tuple(a[: len(path)]) == path for a in args)
    ]
