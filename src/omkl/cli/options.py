"""The flags that commands share, and the tables that a TOML file would hold in their place."""

import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from omkl.compressors import QUANTIZERS
from omkl.data import PARTITIONS
from omkl.errors import InputError
from omkl.features import SPECTRA
from omkl.losses import LOSSES
from omkl.methods import METHODS
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
Name: TypeAlias = Annotated[str | None, option(METHOD, names(METHODS, "gossip"), "NAME")]
Kernels: TypeAlias = Annotated[
    list[str] | None,
    option(METHOD, f"Bandwidths: gaussian:1,3,5 (default); repeat to mix {', '.join(SPECTRA)}.", "BANK"),
]
Features: TypeAlias = Annotated[int | None, option(METHOD, "Spectral samples per kernel, D.", "INT")]
Eta: TypeAlias = Annotated[float | None, option(METHOD, "Learning rate.", "FLOAT")]
Gamma: TypeAlias = Annotated[str | None, option(METHOD, "Consensus step, in (0, 1], or auto.", "FLOAT")]
Regularization: TypeAlias = Annotated[float | None, option(METHOD, "Weight of |theta|^2, lambda.", "FLOAT")]
Loss: TypeAlias = Annotated[str | None, option(METHOD, names(LOSSES, "logistic"), "NAME")]
Quantizer: TypeAlias = Annotated[str | None, option(METHOD, names(QUANTIZERS, "qsgd"), "NAME")]
Bits: TypeAlias = Annotated[int | None, option(METHOD, "Bits of a level; for qsgd.", "INT")]
Rescale: TypeAlias = Annotated[
    bool | None,
    typer.Option("--rescale", rich_help_panel=METHOD, help="Contract at any D; for qsgd.", show_default=False),
]
Step: TypeAlias = Annotated[float | None, option(METHOD, "Width of a level; for nearest.", "FLOAT")]
Block: TypeAlias = Annotated[int | None, option(METHOD, "Quantize in blocks of this length.", "INT")]
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
    "record_every",
    "pooled",
    "standardize",
    "devices",
    "shard",
)
_METHOD = ("features", "eta", "gamma", "regularization", "loss")
_QUANTIZER = ("bits", "rescale", "step", "block")


def tables(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that were given, as a TOML file would hold them."""
    given = {key: _value(key, value) for key, value in params.items() if value not in (None, (), [])}
    if given.get("no_shuffle"):
        given["shuffle"] = False
    method = _take(given, _METHOD)
    if "method" in given:
        method["name"] = given["method"]
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
    """Return a flag's value, be it an inline TOML table in place of a name, to give the named thing settings."""
    if key == "gamma" and value != "auto":
        return _number(value)
    if not (isinstance(value, str) and value.startswith("{")):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError as error:
        raise InputError(f'--{key} {value} is no TOML ({error}); write it as {{name="softmax", classes=3}}') from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--gamma {text}; it must be a number, or auto; write --gamma 0.5") from None


def _bank(text: str) -> tuple[str, list[float]]:
    family, _, sigmas = text.partition(":")
    try:
        return family, [float(sigma) for sigma in sigmas.split(",")]
    except ValueError:
        raise InputError(f"--kernels {text}; it must be a family and its bandwidths; write gaussian:1,3,5") from None
