"""The flags that commands share, and the tables that a TOML file would hold in their place."""

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from omkl.compressors import QUANTIZERS
from omkl.data import PARTITIONS
from omkl.errors import InputError
from omkl.features import SPECTRA
from omkl.learners import LEARNERS
from omkl.losses import LOSSES
from omkl.methods import METHODS, PRESETS
from omkl.sending import SENDING
from omkl.topology import GRAPHS, WEIGHTS


class Format(StrEnum):
    """What a command prints."""

    TABLE = "table"
    JSON = "json"


def option(panel: str, text: str, metavar: str, envvar: str | None = None) -> Any:
    """Return an option, under a heading of ``--help``, that is None where it is not given."""
    return typer.Option(rich_help_panel=panel, help=text, metavar=metavar, envvar=envvar, show_default=False)


def names(known: Iterable[str], default: str) -> str:
    """Return known names for ``--help``, the default first."""
    return ", ".join([f"{default} (default)", *(name for name in known if name != default)]) + "."


NETWORK, METHOD, DEVICES, OUTPUT = "Network", "Method", "Devices", "Output"

Topology: TypeAlias = Annotated[str | None, option(NETWORK, names(GRAPHS, "path"), "NAME")]
Nodes: TypeAlias = Annotated[int | None, option(NETWORK, "Number of nodes, J.", "INT")]
Weights: TypeAlias = Annotated[str | None, option(NETWORK, names(WEIGHTS, "metropolis"), "RULE")]
Faults: TypeAlias = Annotated[
    str | None, option(NETWORK, "What fails in a round, with what probability: {links=0.1, nodes=0.05}.", "TABLE")
]
Partition: TypeAlias = Annotated[str | None, option(NETWORK, names(PARTITIONS, "none"), "NAME")]
Loss: TypeAlias = Annotated[str | None, option(METHOD, names(LOSSES, "logistic"), "NAME")]
Standardize: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--standardize", rich_help_panel="Run", help="Inputs by each node's running moments.", show_default=False
    ),
]
Devices: TypeAlias = Annotated[
    int | None, option(DEVICES, "Number of JAX devices that share the work; those of all processes.", "INT")
]
Shard: TypeAlias = Annotated[
    str | None, option(DEVICES, "What they share: nodes or seeds; seeds (default) where they are enough.", "AXIS")
]
Coordinator: TypeAlias = Annotated[
    str | None, option(DEVICES, "Where process 0 listens for the others.", "HOST:PORT", "OMKL_COORDINATOR")
]
Processes: TypeAlias = Annotated[int | None, option(DEVICES, "Number of processes.", "INT", "OMKL_PROCESSES")]
Process: TypeAlias = Annotated[int | None, option(DEVICES, "Which of them this is, from 0.", "INT", "OMKL_PROCESS")]
Output: TypeAlias = Annotated[Format, typer.Option("--format", rich_help_panel=OUTPUT, help="What to print.")]

KINDS = f"{names(PRESETS, 'recommended')[:-1]}; {', '.join(METHODS)}."
DESCRIBED: dict[str, Any] = {
    "method": Annotated[str | None, option(METHOD, KINDS, "NAME")],
    "kernels": Annotated[
        list[str] | None, option(METHOD, f"gaussian:1,3,5, say; repeat to mix {', '.join(SPECTRA)}.", "BANK")
    ],
    "sigma": Annotated[str | None, option(METHOD, "What bandwidths are in: given units, or median ones.", "UNIT")],
    "features": Annotated[int | None, option(METHOD, "Spectral samples per kernel, D.", "INT")],
    "basis": Annotated[str | None, option(METHOD, "Learn in so many directions of them.", "RANK")],
    "learner": Annotated[str | None, option(METHOD, f"{', '.join(LEARNERS)}.", "NAME")],
    "eta": Annotated[float | None, option(METHOD, "Learning rate of sgd.", "FLOAT")],
    "regularization": Annotated[float | None, option(METHOD, "Weight of |theta|^2, lambda.", "FLOAT")],
    "loss": Loss,
    "weight_rate": Annotated[float | None, option(METHOD, "Rate of the kernel weights; eta if not given.", "FLOAT")],
    "common_weights": Annotated[
        bool | None,
        typer.Option(rich_help_panel=METHOD, help="Gossip the kernel weights too.", show_default=False),
    ],
    "gamma": Annotated[str | None, option(METHOD, "Consensus step, in (0, 1], or auto.", "FLOAT")],
    "momentum": Annotated[float | None, option(METHOD, "Share of a mixing move that is carried on.", "FLOAT")],
    "clip": Annotated[str | None, option(METHOD, "Bound what a neighbor can do; try 0.3.", "FLOAT")],
    "pace": Annotated[str | None, option(METHOD, "Rounds of gossip a sample: 8, 0.25, {bytes=48}.", "RATE")],
    "reach": Annotated[str | None, option(METHOD, "Samples a step counts for at most.", "MOST")],
    "sending": Annotated[str | None, option(METHOD, f"Leave out kernels: {', '.join(SENDING)}.", "NAME")],
    "quantizer": Annotated[str | None, option(METHOD, f"{', '.join(QUANTIZERS)}.", "NAME")],
    "bits": Annotated[int | None, option(METHOD, "Bits of a level; for qsgd.", "INT")],
    "rescale": Annotated[
        bool | None,
        typer.Option("--rescale", rich_help_panel=METHOD, help="Contract at any D; for qsgd.", show_default=False),
    ],
    "step": Annotated[float | None, option(METHOD, "Width of a level; for nearest.", "FLOAT")],
    "block": Annotated[int | None, option(METHOD, "Quantize in blocks of this length.", "INT")],
}
"""The flags that describe a method."""


def describes_method(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the flags of a method too, after that of the weights; ``ctx.params`` has what they say."""
    signature = inspect.signature(command)
    own = list(signature.parameters.values())
    place = list(signature.parameters).index("weights") + 1
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    more = [inspect.Parameter(name, kind, default=None, annotation=hint) for name, hint in DESCRIBED.items()]

    @functools.wraps(command)
    def described(**given: Any) -> None:
        command(**{name: given[name] for name in signature.parameters})

    described.__signature__ = signature.replace(parameters=[*own[:place], *more, *own[place:]])  # type: ignore[attr-defined]
    described.__annotations__ = command.__annotations__ | DESCRIBED
    return described


_TOP = (
    "data",
    "topology",
    "nodes",
    "weights",
    "faults",
    "seeds",
    "seed",
    "shuffle",
    "partition",
    "rounds",
    "record_every",
    "pooled",
    "standardize",
    "devices",
    "shard",
)
_QUANTIZER = ("bits", "rescale", "step", "block")
_METHOD = tuple(key for key in DESCRIBED if key not in ("method", "kernels", "quantizer", *_QUANTIZER))
_NUMBERS = {
    "gamma": "a number, or auto; write --gamma 0.5",
    "clip": "a number, or none; write --clip 0.1",
    "basis": "how many directions, a table, or none; write --basis 160",
    "pace": "rounds a sample, a table, or none; write --pace 8",
    "reach": "samples a step, a table, or none; write --reach 12",
}
_CALLED = {"basis": "rank", "pace": "rate", "reach": "most"}  # what such a number is in the table that it stands for
_LEFT_OUT = ("basis", "learner", "clip", "pace", "sending", "reach")  # none is to do without


def tables(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, as a TOML file would hold them."""
    given = {key: _value(key, value) for key, value in params.items() if value not in (None, (), [])}
    if given.get("no_shuffle"):
        given["shuffle"] = False
    method = _take(given, _METHOD)
    if "method" in given:
        named = given["method"]
        method = (named if isinstance(named, dict) else {"name": named}) | method
    if "kernels" in given:
        bank: dict[str, list[float]] = {}
        for family, sigmas in map(_bank, given["kernels"]):
            bank[family] = bank.get(family, []) + sigmas
        method["kernels"] = bank
    quantizer = _take(given, _QUANTIZER)
    if "quantizer" in given:
        named = given["quantizer"]
        quantizer = (named if isinstance(named, dict) else {"name": named}) | quantizer
    if quantizer:
        method["quantizer"] = quantizer
    return _take(given, _TOP) | ({"method": method} if method else {})


def _take(given: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: given[key] for key in keys if key in given}


def _value(key: str, value: Any) -> Any:
    """Return a flag's value: a number or a name, none, or an inline TOML table that gives the named thing settings."""
    if not isinstance(value, str):
        return value
    if value == "none" and key in _LEFT_OUT:
        return False  # as in a file, TOML having no null
    if value.startswith("{"):
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError as error:
            text = f'--{key} {value} is no TOML ({error}); write it as {{name="softmax", classes=3}}'
            raise InputError(text) from None
    return _number(key, value) if key in _NUMBERS and (key, value) != ("gamma", "auto") else value


def _number(key: str, text: str) -> Any:
    try:
        number = int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise InputError(f"--{key} {text}; it must be {_NUMBERS[key]}") from None
    return {_CALLED[key]: number} if key in _CALLED else number


def _bank(text: str) -> tuple[str, list[float]]:
    family, _, sigmas = text.partition(":")
    try:
        return family, [float(sigma) for sigma in sigmas.split(",")]
    except ValueError:
        raise InputError(f"--kernels {text}; it must be a family and its bandwidths; write gaussian:1,3,5") from None
