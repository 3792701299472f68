"""Methods cut in two: a skeleton, which programs are compiled for, and the numbers that they are given.

Numbers are all settings of omkl's own parts that are floats: eta, gamma, priors, the step of a quantizer. Another value
compiles nothing. Structure, for which programs differ, is everything else: whole numbers, names, what is None, and

- ``OFF``: a number at which a part is left out;
- the loss: whether its slope is bounded decides what is computed;
- parts that are not omkl's own, which may ask their numbers anything.

What Python computes from numbers goes along as arrays: the costs of a quantizer's levels, and how many samples there
are after a round, where copies are clipped. The rounds of gossip that go with a sample are arguments anyway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from omkl.arrays import Array
from omkl.learners import Pooled
from omkl.methods import Gossip, Method
from omkl.methods.clipping import clips
from omkl.quantizers import Nearest
from omkl.reach import LONGEST, Reach
from omkl.wire.sizes import SMALL_TABLE, Costs, costs

OFF = {"momentum": 0.0, "forget": 1.0}
WHOLE = ("loss",)
MOST_LEVELS = 256  # of a table: those of a quantizer with few levels have ``SMALL_TABLE``

Numbers: TypeAlias = tuple[Array, ...]


class Slot(NamedTuple):
    """Stands for a number in a skeleton."""

    place: int

    def __format__(self, spec: str) -> str:
        """Return how a skeleton is printed."""
        return "..."


@dataclass(frozen=True)
class Stepped(Nearest):
    """``Nearest`` with a step that is an argument, and what follows from it."""

    largest: Any = 0
    costs: Any = ()

    def most(self, length: int) -> Any:
        """Return the largest level."""
        return self.largest


def split(method: Any) -> tuple[Any, Numbers]:
    """Return the skeleton of a method, and its numbers."""
    if not _is_own(method):
        return method, ()
    numbers: list[Array] = []
    values = {one.name: getattr(method, one.name) for one in fields(method)}
    tables = {}
    if isinstance(method, Gossip) and clips(method) and isinstance(method.learner, Pooled):
        tables["samples_by_round"] = tuple(_slot(numbers, values) for values in method.samples_by_round)
    made = {name: _parted(name, value, method, numbers) for name, value in values.items()}
    return _copy(type(method), made | tables), tuple(numbers)


def split_all(methods: Iterable[Method]) -> tuple[tuple[Any, ...], tuple[Numbers, ...]]:
    """Return the skeletons of methods, and the numbers of each."""
    skeletons, numbers = zip(*map(split, methods), strict=True)
    return skeletons, numbers


def _is_own(value: Any) -> bool:
    return is_dataclass(value) and type(value).__module__.partition(".")[0] == "omkl"


def _copy(kind: Any, values: dict[str, Any]) -> Any:
    """Return an object of these settings that are not checked: they may be none in particular."""
    made = object.__new__(kind)
    vars(made).update(values)
    return made


def _slot(numbers: list[Array], value: Any) -> Slot:
    numbers.append(np.asarray(value, np.float32))
    return Slot(len(numbers) - 1)


def _parted(name: str, value: Any, method: Any, numbers: list[Array]) -> Any:
    if name in WHOLE or (type(value) is float and value == OFF.get(name)):
        return value
    if type(value) is float or (isinstance(value, tuple) and value and all(type(one) is float for one in value)):
        return _slot(numbers, value)
    if isinstance(value, tuple):
        return tuple(_parted("", one, method, numbers) for one in value)
    if not _is_own(value):
        return value
    settings = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Reach) and value.knots:  # as many on every network
        settings["knots"] = value.knots + value.knots[-1:] * (LONGEST + 1 - len(value.knots))
    made = {key: _parted(key, one, method, numbers) for key, one in settings.items()}
    if type(value) is not Nearest:
        return _copy(type(value), made)
    length = value.block or method.sent
    return _copy(
        Stepped,
        made | {"largest": _slot(numbers, value.most(length)), "costs": _costs(costs(value, method.sent), numbers)},
    )


def _costs(table: Any, numbers: list[Array]) -> Costs:
    count = SMALL_TABLE if len(table.levels) <= SMALL_TABLE else MOST_LEVELS
    levels = table.levels + table.levels[-1:] * (count - len(table.levels))
    made: Costs = table._replace(levels=_slot(numbers, levels), width=_slot(numbers, table.width))
    return made


def joined(value: Any, numbers: Numbers) -> Any:
    """Return a skeleton, or a part of it, with these numbers, which may be arguments of a compiled program."""
    if isinstance(value, Slot):
        return numbers[value.place]
    if isinstance(value, Costs):
        return Costs(*(joined(one, numbers) for one in value))
    if isinstance(value, tuple):
        return tuple(joined(one, numbers) for one in value)
    if not _is_own(value):
        return value
    return _copy(type(value), {name: joined(one, numbers) for name, one in vars(value).items()})
