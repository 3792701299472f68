"""Methods as the tables of a file, which ``omkl simulate`` and ``omkl node`` read."""

import json
import math
from dataclasses import is_dataclass
from typing import Any

from omkl.errors import InputError
from omkl.features import Kernel
from omkl.settings import values


def as_table(thing: Any) -> dict[str, Any]:
    """Return the table of a method or a part: every setting that is not None, which TOML lacks, or empty."""
    given = {key: _plain(value) for key, value in values(thing).items()}
    name = {"name": thing.name} if hasattr(thing, "name") else {}
    return name | {key: value for key, value in given.items() if value is not None and value != ()}


def as_toml(method: Any) -> str:
    """Return the table as text, to be pasted into a file."""
    lines = (f"{key} = {_toml(value)}\n" for key, value in as_table(method).items())
    return "[method]\n" + "".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and value and all(isinstance(one, Kernel) for one in value):
        return _bank(value)
    return as_table(value) if is_dataclass(value) else value


def _bank(kernels: tuple[Kernel, ...]) -> dict[str, list[float]]:
    bank: dict[str, list[float]] = {}
    for kernel in kernels:
        if kernel.spectrum is not None:
            raise InputError(f"kernel {kernel.name!r} has a spectrum of its own; a file holds none; use it from Python")
        bank.setdefault(kernel.name, []).append(kernel.sigma)
    return bank


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # TOML has inf, JSON has not
    return json.dumps(value)
