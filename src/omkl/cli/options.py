"""Flags made from the settings of an experiment and of a method, and the table that a TOML file would hold for them."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import is_dataclass, make_dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import typer

from omkl.compressors import QUANTIZERS
from omkl.config import PARTS, TASK, Table, as_table
from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.features import Kernel
from omkl.methods import METHODS, PRESETS, Gossip, recommended
from omkl.registry import Registry
from omkl.settings import Setting, settings
from omkl.topology import GRAPHS, WEIGHTS

OUTPUT = "Output"

RUN = settings(Experiment)
METHOD = settings(recommended())
SWITCHED_OFF = {
    "no_shuffle": "Keep the rows in their order.",
    "no_standardize": "Take the inputs as they are, also those of a file.",
    "no_common_weights": "Let every node weigh the kernels by its own losses.",
}
BARE = re.compile(r"(?<![\w.\"'])(?!(?:true|false|inf|nan)\b)[A-Za-z_]\w*(?!\s*=)(?![\w\"'])")  # texts without quotes
UNFLAGGED = ("k",)  # too short a word for a flag: {name="topk", k=4}
OWN = QUANTIZERS.own  # to look at those of other packages would be to import them
QUANTIZER = {name: one for make in OWN.values() for name, one in settings(make).items() if name not in UNFLAGGED}
FLAGS = " ".join([*METHOD, *QUANTIZER]).replace("common_weights", "common_weights no_common_weights")
NAMES = {"topology": list(GRAPHS), "weights": list(WEIGHTS), "method": [*PRESETS, *METHODS]}


class Format(StrEnum):
    """What a command prints."""

    TABLE = "table"
    JSON = "json"


Output: TypeAlias = Annotated[
    Format, typer.Option("--format", rich_help_panel=OUTPUT, help="A table for people, or JSON for programs.")
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("--quiet", rich_help_panel=OUTPUT, help="Print no progress and no log.")
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", rich_help_panel=OUTPUT, help="Replace the result that --out holds.")
]
Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option(
        help="Number of processes on this machine. Without it: one for each core.", metavar="INT", show_default=False
    ),
]
Spec: TypeAlias = Annotated[
    Path | None,
    typer.Argument(
        exists=True,
        dir_okay=False,
        metavar="SPEC.toml",
        help="A file of settings; flags win over it.",
        show_default=False,
    ),
]


def require_free(file: Path, overwrite: bool) -> None:
    """Refuse to replace the file of an earlier result that nobody has given up."""
    if file.exists() and not overwrite:
        raise InputError(f"{file.parent} holds a result already; it is kept; give another --out, or add --overwrite")


def flags(experiment: str, method: str = FLAGS) -> Any:
    """Return a dataclass of flags for these settings of an experiment, and of a method and its quantizer.

    A command is a dataclass as well: it inherits these flags, adds its own, and does its work when it is made. A flag
    that is not given is None. ``no_`` before a name is the switch that turns it off.
    """
    chosen = [(name, RUN[name.removeprefix("no_")], "Experiment") for name in experiment.split()]
    known = {**METHOD, **QUANTIZER}
    chosen += [(name, known[name.removeprefix("no_")], "Method") for name in method.split()]
    return make_dataclass("Flags", [(name, _flag(name, one, panel), None) for name, one, panel in chosen])


def _flag(name: str, setting: Setting, panel: str) -> Any:
    """Return the type of a flag, with what ``--help`` says of it."""
    word = f"--{name.replace('_', '-')}"
    kind: Any = str
    metavar: str | None = "VALUE"
    if list[str] in _kinds(setting):
        kind, metavar = list[str], "NAMES"
    elif bool in _kinds(setting) or name != setting.name:
        kind, metavar = bool, None
    elif setting.hint == tuple[Kernel, ...]:
        kind, metavar = list[str], "VALUES"
    elif number := {int, float} & set(_kinds(setting)):
        metavar = number.pop().__name__.upper()
    text = _help(setting) if name == setting.name else SWITCHED_OFF[name]
    told = typer.Option(word, rich_help_panel=panel, help=text, metavar=metavar, show_default=False)
    return Annotated[kind | None, told]


def _kinds(setting: Setting) -> tuple[Any, ...]:
    return get_args(setting.hint) if get_origin(setting.hint) in (Union, UnionType) else (setting.hint,)


def _help(setting: Setting) -> str:
    """Return the first clause of what the docstring says of a setting, and the names it may be."""
    clause = re.split(r"[;:.](?: |$)", setting.doc.replace("``", ""))[0]
    known = NAMES.get(setting.name, [])
    for kind in _kinds(setting):
        known = known or list(PARTS[kind].known if kind in PARTS else get_args(kind) * (get_origin(kind) is Literal))
    if setting is QUANTIZER.get(setting.name):
        return f"{clause}; for {', '.join(name for name, make in OWN.items() if setting.name in settings(make))}."
    if setting.hint == tuple[Kernel, ...]:
        return "Families of kernels and their bandwidths, as gaussian:1,3,5; repeat the flag for several families."
    if list[str] in _kinds(setting):
        return f"{clause}; write a,b for several, or repeat the flag."
    between = ", or " if float in _kinds(setting) else ": "
    return f"{clause}{between}{', '.join(known)}." if known else f"{clause}."


def tables(command: Any) -> Table:
    """Return the flags that were given to a command, as a TOML file would hold them."""
    given = {name: value for name, value in vars(command).items() if value not in (None, [])}
    run = {name: _read(one, given[name]) for name, one in RUN.items() if name in given}
    parts = {name: _part(one, given[name]) for name, one in METHOD.items() if name in given}
    for name in (name for name in SWITCHED_OFF if name in given):
        (run if name.removeprefix("no_") in RUN else parts)[name.removeprefix("no_")] = False
    quantizer = {name: _read(one, given[name]) for name, one in QUANTIZER.items() if name in given}
    if quantizer:
        parts["quantizer"] = as_table(parts.get("quantizer", {}), "quantizer") | quantizer
    return run | ({"method": as_table(run.get("method", {}), "method") | parts} if parts else {})


def _part(setting: Setting, value: Any) -> Any:
    """Return the value of a method's flag: none leaves a part out, and a number is the first setting of one."""
    if isinstance(value, list):
        return _bank(value)
    if value == "none" and setting.name not in TASK and settings(Gossip)[setting.name].default is None:
        return False  # as in a file, TOML having no null
    for kind in _kinds(setting):
        known = [*PARTS[kind].known.values()] if kind in PARTS and PARTS[kind].by_settings else [kind]
        if is_dataclass(known[0]) and not isinstance(number := _number(value), str):
            return {next(iter(settings(known[0]))): number}
    return _read(setting, value)


def _read(setting: Setting, value: Any) -> Any:
    """Return the value of a flag: a switch, a number, a name, or an inline TOML table."""
    if isinstance(value, list):
        return value if len(value) > 1 else value[0]
    if isinstance(value, str) and value.startswith("{"):
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            flag, meant = f"--{setting.name}", BARE.sub(r'"\g<0>"', value)
            remedy = "write it as '{name=\"softmax\", classes=3}'"
            with suppress(tomllib.TOMLDecodeError):
                tomllib.loads(f"value = {meant}")
                remedy = f"the shell takes double quotes away; put the value in single quotes: {flag} '{meant}'"
            raise InputError(f"{flag} {value} is not TOML ({error}); {remedy}") from None
    return _number(value) if {int, float} & set(_kinds(setting)) else value


def of_a_part(flag: str, words: list[str], known: set[str]) -> str | None:
    """Return how to write a flag that is a setting of a part; None where no part of these known flags has it.

    ``words`` are what was typed, to take the value from. The part that the default has goes first.
    """
    name, _, value = flag.lstrip("-").partition("=")
    name = name.replace("-", "_")
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word.partition("=")[0] == flag:
            value = word.partition("=")[2] or after
    plain = isinstance(_number(value), int | float) or value in ("true", "false")
    made = _number(value) if plain else f'"{value}"'
    for part, one in {**METHOD, **RUN}.items():
        for called, make in _makers(one) if part in known else ():
            if name in settings(make):
                which = f'name="{called}", ' if called else ""
                return f"--{part} '{{{which}{name}={made}}}'"
    return None


def _makers(setting: Setting) -> Iterator[tuple[str | None, Any]]:
    """Yield what a part may be, by name, that which it is by default first."""
    if setting is RUN["topology"]:
        yield from GRAPHS.items()
    for kind in _kinds(setting):
        if kind in PARTS:
            choice = PARTS[kind].known
            own = choice.own if isinstance(choice, Registry) else choice  # imports nothing
            yield from sorted(own.items(), key=lambda named: named[1] is not type(setting.default))
        elif is_dataclass(kind):
            yield None, kind


def _number(text: Any) -> Any:
    """Return the number that a text is; the text itself, which will be refused, where it is none."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _bank(texts: list[str]) -> dict[str, list[float]]:
    bank: dict[str, list[float]] = {}
    for text in texts:
        family, _, sigmas = text.partition(":")
        try:
            bank[family] = bank.get(family, []) + [float(sigma) for sigma in sigmas.split(",")]
        except ValueError:
            raise InputError(
                f"--kernels {text}; it must be a family and its bandwidths; write gaussian:1,3,5"
            ) from None
    return bank
