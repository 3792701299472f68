"""The application: its commands, and what becomes of their errors."""

import errno
import inspect
import os
import select
import sys
import warnings
from importlib.metadata import EntryPoint, version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from omkl.cli import options
from omkl.cli.cluster import cluster
from omkl.cli.dashboard import dashboard
from omkl.cli.data import data
from omkl.cli.doctor import doctor
from omkl.cli.exits import MEANINGS, Exit, tell
from omkl.cli.explain import explain
from omkl.cli.node import node
from omkl.cli.simulate import simulate
from omkl.errors import AddressError, ClockError, DiskError, DivergedError, InputError, MissingExtraError
from omkl.registry import added

COMMANDS = (simulate, cluster, dashboard, explain, data, doctor)
LONGEST = 1000  # letters of an error
USAGE: Any = typer.BadParameter.__mro__[1]  # what all errors of usage are; versions of Typer keep it in other places
ADDED = "omkl.commands"  # the entry points by which other packages add to them


class _Commands(TyperGroup):
    """Commands whose expected errors are one line and an exit code; any other is a bug and keeps its traceback."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _fit(self)

    def invoke(self, ctx: Any) -> Any:
        words = [*ctx.args]
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning  # type: ignore[assignment]
                given = super().invoke(ctx)
                if sys.stdout is not None:  # it may be closed
                    sys.stdout.flush()
                return given
        except USAGE as error:
            if not error.format_message():
                raise  # it was told by printing help
            code, line = Exit.INPUT, f"error: {_usage(error, words)}"
        except MissingExtraError as error:
            code, line = Exit.MISSING, f"error: {error}"
        except (InputError, OSError) as error:
            if isinstance(error, BrokenPipeError) and _is_unread():
                raise typer.Exit(Exit.UNREAD) from None
            code, line = _code(error), f"error: {_line(error)}"
        except KeyboardInterrupt:
            code, line = Exit.INTERRUPTED, "interrupted"
        tell(line)
        raise typer.Exit(code)


def _fit(command: Any) -> None:
    """Let help fit any terminal: paragraphs flow, and switches show no type."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for option in (*command.params, command.get_help_option(typer.Context(command))):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _fit(inner)


def _code(error: InputError | OSError) -> Exit:
    if isinstance(error, DivergedError):
        return Exit.DIVERGED
    fails = isinstance(error, OSError) and error.errno in (errno.EIO, errno.ENOSPC)
    return Exit.DISK if fails or isinstance(error, DiskError | AddressError | ClockError) else Exit.INPUT


def _is_unread() -> bool:
    """Return whether stdout is a pipe that nobody reads any more; if so, what is left for it goes nowhere."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), select.POLLOUT)
    if any(event & select.POLLERR for _, event in watch.poll(0)):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _usage(error: Any, words: list[str]) -> str:
    told = _line(error.format_message()).replace("Value error, ", "").rstrip(".")
    if flag := getattr(error, "option_name", None):
        known = {one.name for one in error.ctx.command.params} if error.ctx else set()
        remedy = options.of_a_part(flag, words, known)
        told = f"No such option: {flag}; it is a setting of a part: {remedy}" if remedy else told
    where = error.ctx.command_path if error.ctx else "omkl"
    return f"{told}{'' if told.endswith('?') else ';'} see {where} --help"


def _line(error: object) -> str:
    """Return what an error says in one line that a terminal can show: it may quote a file of anybody's."""
    text = " ".join(str(error).split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
    return shown if len(text) <= LONGEST else f"{shown} ..."


def _show_warning(message: Warning | str, *_: Any) -> None:
    tell(f"warning: {message}")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"omkl {version('omkl')}")
        raise typer.Exit


def make_app() -> typer.Typer:
    """Return the application: omkl's own commands, and those that installed packages add."""
    app = typer.Typer(
        cls=_Commands,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        epilog="Exit codes: " + ", ".join(f"{code:d} {MEANINGS[code]}" for code in Exit) + ".",
    )
    app.callback()(_omkl)
    for command in COMMANDS:
        app.command()(command)
    app.add_typer(node, name="node")
    own = {"node", *(command.__name__ for command in COMMANDS)}
    for name, point in added(ADDED).items():
        if name not in own:
            _add(app, point)
    return app


def _add(app: typer.Typer, point: EntryPoint) -> None:
    """Add a command of another package; one that cannot be imported is left out, so that the others work."""
    try:
        command = point.load()
        if not callable(command):
            raise TypeError(f"it is {command!r}, no function")
        app.command(point.name)(command)
    except (Exception, SystemExit) as error:
        told = f"{point.value} of another package cannot be imported ({error}); mend that package, or remove it"
        _show_warning(f"the command {point.name} is left out: {told}")


def _omkl(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Decentralized online multi-kernel learning: a network of devices learns one nonlinear model by gossip.

    Example: omkl simulate --data banana --topology ring --nodes 20
    """


app = make_app()
