"""What ``omkl`` takes and what it refuses: command lines and files, each with its frozen exit code.

``commands.toml`` holds the cases and says what their keys mean. A case is run in this process, in a folder of its own.
"""

import logging
import re
import signal
import sys
import tempfile
import tomllib
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from typer.main import get_command
from typer.testing import CliRunner

from omkl.cli.app import app

CORPUS = Path(__file__).with_name("commands.toml")
OWN = ("OMKL_DATA", "OMKL_COORDINATOR", "OMKL_PROCESSES", "OMKL_PROCESS", "OMKL_DASHBOARD_TOKEN")
TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")  # what would make rich draw progress bars
ENVIRONMENT: dict[str, str | None] = {**dict.fromkeys(OWN + TERMINAL), "COLUMNS": "400"}  # no line is broken
SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
COLORS = re.compile(r"\x1b\[[0-9;]*m")
BEGINNING = "omkl: error: "
REFUSED = (2, 3, 4)  # exit codes of errors that are told in one line


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command line, the files that it finds, and what must come of it."""

    name: str
    args: Sequence[str]
    exit: int
    files: Mapping[str, str]
    says: Sequence[str] = ()
    one_line: bool = True


class Outcome(NamedTuple):
    """What came of a command line."""

    exit: int
    stdout: str
    stderr: str


def cases() -> list[Case]:
    """Return the cases of the corpus."""
    corpus = tomllib.loads(CORPUS.read_text(encoding="utf-8"))
    return [_case(corpus["files"], table) for table in corpus["case"]]


def _case(shared: Mapping[str, str], table: dict[str, Any]) -> Case:
    files = {**shared, **table.pop("files", {})}
    for name, pairs in table.pop("change", {}).items():
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            if files[name].count(old) != 1:
                raise ValueError(f"{table['name']}: {old!r} is not once in {name}; a change needs one place; mend it")
            files[name] = files[name].replace(old, new)
    return Case(files=files, **table)


def run(case: Case, folder: Path) -> Outcome:
    """Return what comes of a case, in a folder to which its files are written first."""
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    with chdir(folder), _undone(), CliRunner().isolation(env=ENVIRONMENT) as (stdout, stderr, _):
        code = _main(case.args)
        sys.stdout.flush()
        sys.stderr.flush()
        return Outcome(code, *(COLORS.sub("", stream.getvalue().decode()) for stream in (stdout, stderr)))


@cache
def _command() -> Any:
    """Return the application as typer runs it. To build it takes longer than most cases, so it is built once."""
    return get_command(app)


def _main(args: Sequence[str]) -> int:
    try:
        _command().main(args=list(args), prog_name="omkl")
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def _undone() -> Iterator[None]:
    """Let warnings be as a user has them, and undo in the end what commands do to the process they run in."""
    handlers, level = logging.root.handlers[:], logging.root.level
    signals = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            yield
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
        for number, handler in signals.items():
            signal.signal(number, handler)


def differences(case: Case, outcome: Outcome) -> list[str]:
    """Return in what an outcome is not as frozen; nothing where it is."""
    found = [] if outcome.exit == case.exit else [f"exit code {outcome.exit}; {case.exit} is frozen"]
    printed = _alike(outcome.stdout + outcome.stderr)
    found += [f"{word!r} is not in what is printed" for word in case.says if _alike(word) not in printed]
    if case.exit in REFUSED and case.one_line and not is_one_line(outcome):
        found.append(f"a refusal that is not one line, beginning {BEGINNING!r}, and no more")
    return found


def is_one_line(outcome: Outcome) -> bool:
    """Return whether nothing was printed but one line that tells of an error."""
    return outcome.stderr.startswith(BEGINNING) and outcome.stderr.count("\n") == 1 and not outcome.stdout


def _alike(text: str) -> str:
    """Return the text with flags and keys written alike: ``--weight-rate`` is ``weight_rate`` in a file."""
    return text.replace("_", "-")


def freeze() -> None:
    """Run every case anew, rewrite the exit codes in the corpus, and print in what else cases differ."""
    codes = []
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(case, Path(folder))
        codes.append(outcome.exit)
        for difference in differences(case, outcome):
            print(f"{case.name}: {difference}")
    CORPUS.write_text(_recoded(CORPUS.read_text(encoding="utf-8"), codes), encoding="utf-8")


def _recoded(text: str, codes: Sequence[int]) -> str:
    """Return the text of a corpus with other exit codes, in the order of its cases."""
    given = iter(codes)
    recoded = re.sub(r"^exit = .*$", lambda _: f"exit = {next(given)}", text, flags=re.MULTILINE)
    if list(given):
        raise ValueError("some case has no line that begins with 'exit = '; each has one; add it")
    return recoded
