"""What is printed: data on stdout, progress on stderr."""

import dataclasses
import json
import logging
import math
import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


class Report(Protocol):
    """Called with the rounds done, the rounds in all, and what is being done."""

    def __call__(self, done: int, rounds: int, what: str = "simulating") -> None:
        """Show how far the work is."""


PATIENCE = 2.0  # seconds that a run may stay silent
SETTLED = 3.0  # seconds after the first rounds, from which on an estimate is worth saying: those were compiled first
ENOUGH = 0.05  # of the rounds, likewise
PIPE_WIDTH = 400  # a pipe has no width, and a folded line is hard to read for a program


def console() -> Console:
    """Return stdout, in the width of the terminal."""
    return _Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


class _Console(Console):
    def print(self, *objects: Any, **how: Any) -> None:
        """Print as rich does; to a pipe or a file without the spaces that fill its lines."""
        if self.is_terminal:
            super().print(*objects, **how)
            return
        with self.capture() as held:
            super().print(*objects, **how)
        self.file.writelines(f"{line.rstrip()}\n" for line in held.get().splitlines())

    def on_broken_pipe(self) -> None:
        """Leave a pipe that nobody reads to the application, which knows the exit code."""
        raise BrokenPipeError


@contextmanager
def only_data_on_stdout() -> Iterator[None]:
    """Send to stderr what native libraries print meanwhile, as Gloo does when processes meet."""
    stdout, stderr = 1, 2
    kept = os.dup(stdout)
    os.dup2(stderr, stdout)
    try:
        yield
    finally:
        os.dup2(kept, stdout)
        os.close(kept)


def print_page(text: str) -> None:
    """Print lines of text, those too long for the terminal broken at words and hung under their last column."""
    width = console().width
    for line in text.splitlines():
        columns = re.match(r"(.*\s{2,})?", line)
        assert columns
        print(textwrap.fill(line, width, subsequent_indent=" " * columns.end()))


def print_json(value: Any) -> None:
    """Print a value of dataclasses, tuples and numbers as JSON; null stands for what is not finite."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def log(quiet: bool) -> Iterator[None]:
    """Print what the library logs to stderr, unless quiet."""
    logger, handler = logging.getLogger("omkl"), logging.StreamHandler()
    handler.setLevel(logging.CRITICAL if quiet else logging.INFO)
    handler.setFormatter(logging.Formatter("omkl: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def progress(quiet: bool) -> Iterator[Report | None]:
    """Yield what to call with the rounds done and the rounds in all: a bar, a few lines, or nothing."""
    stderr = Console(stderr=True)
    if quiet:
        yield None
    elif not stderr.is_terminal:
        yield _Lines()
    else:
        text = TextColumn("{task.description}")
        columns = SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=stderr, transient=True) as bar:
            task = bar.add_task("", total=None)

            def update(done: int, rounds: int, what: str = "simulating") -> None:
                bar.update(task, completed=done, total=rounds, description=what)

            yield update


class _Lines:
    """Prints a line after two seconds, and again whenever the time has doubled: a few, however long the run."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._due = PATIENCE
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, rounds: int, what: str = "simulating") -> None:
        elapsed = time.monotonic() - self._start
        if done and self._first is None:
            self._first = elapsed, done
        if elapsed >= self._due and done < rounds:
            self._due = 2 * elapsed
            print(
                f"omkl: {what}, {done:,} of {rounds:,}, {elapsed:.0f} s{self._left(elapsed, done, rounds)}",
                file=sys.stderr,
            )

    def _left(self, elapsed: float, done: int, rounds: int) -> str:
        """Return how long it will take, by the rounds after the first; nothing while these say too little."""
        if self._first is None:
            return ""
        began, before = self._first
        if done < ENOUGH * rounds and elapsed - began < SETTLED:
            return ""
        each = (elapsed - began) / (done - before) if done > before else elapsed / done
        return f", about {each * (rounds - done):.0f} s left"
