"""The settings to try: values and ranges by their names, and candidates that are drawn from them."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from omkl.errors import InputError, real, unknown
from omkl.learners import SGD
from omkl.settings import build, settings

Space: TypeAlias = Mapping[str, Sequence[Any]]
"""Names of settings, such as ``"gamma"`` or ``"learner.prior"``, each with a list of values, or with a pair (low, high)
that is drawn from evenly in the logarithm."""

SCALE = "kernels.scale"  # no field: a factor on all bandwidths

# The default space: so many times the base's value, or less; and values for what no factor suits.
FACTORS = {
    "eta": 30.0,
    "learner.eta": 30.0,
    "learner.prior": 5.0,
    "reach.most": 3.0,
    "pace.bytes": 3.0,
    "learner.c": 4.0,
    "weight_rate": 4.0,
    "gamma": 3.0,
    "quantizer.step": 1.5,
    "basis.rank": 1.6,
    "sending.threshold": 2.0,
    SCALE: 1.6,
}
VALUES: dict[str, list[Any]] = {"momentum": [0.0, 0.5, 0.7, 0.8, 0.9], "quantizer.bits": [2, 3, 4, 5]}
TRIES = 100  # draws for a candidate that is new and that the method does not refuse


class Drawn(NamedTuple):
    """A candidate: its settings, and the base method with them."""

    settings: dict[str, Any]
    method: Any


def names(method: Any) -> list[str]:
    """Return the names of all settings of a method and of its parts."""
    parts = {name: _part(method, name) for name in settings(method)}
    inner = [f"{name}.{field}" for name, part in parts.items() if is_dataclass(part) for field in settings(part)]
    return [*parts, *inner, SCALE]


def default(method: Any) -> dict[str, Sequence[Any]]:
    """Return the space around a method: those settings in ``FACTORS`` and ``VALUES`` that it has."""
    unused = "learner.eta" if isinstance(method.learner, SGD) else "eta"
    known = [name for name in names(method) if name != unused]
    values = {name: _value(method, name) for name in known if name in FACTORS}
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float) and value > 0}
    around = {name: (value / FACTORS[name], value * FACTORS[name]) for name, value in numbers.items()}
    return {**around, **{name: listed for name, listed in VALUES.items() if name in known}}


def check(method: Any, space: Space) -> None:
    """Refuse a space that does not fit the method."""
    known = names(method)
    if not space:
        raise InputError(f"the space is empty; it must name what to tune; give {known[-1]}, say, or no space at all")
    for name, values in space.items():
        if name not in known:
            raise InputError(unknown("setting", name, known))
        if "." in name and name.partition(".")[0] in space:
            raise InputError(f"{name} is tuned, and so is all of {name.partition('.')[0]}; leave out one of them")
        if isinstance(values, tuple):
            if len(values) != 2 or not 0 < real(name, values[0]) < real(name, values[1]) < np.inf:
                rule = "a range has two positive ends, the low one first"
                raise InputError(f"{name} is {values!r}; {rule}; pass (0.1, 10), say, or a list of values")
        elif not isinstance(values, list) or not values:
            raise InputError(f"{name} is {values!r}; it must be a list of values, or a range; pass [1, 2] or (0.1, 10)")


def draw(base: Any, space: Space, count: int, seed: int) -> list[Drawn]:
    """Return candidates that differ from each other and from the base, as many as the space has, up to ``count``.

    What the method refuses, such as a rank beyond the features, is drawn again.
    """
    check(base, space)
    rng, found, refused = np.random.default_rng(seed), {base: Drawn({}, base)}, None
    for _ in range(TRIES * count):
        chosen = {name: _one(rng, values, _value(base, name)) for name, values in space.items()}
        try:
            method = place(base, chosen)
        except InputError as error:
            refused = error
            continue
        found.setdefault(method, Drawn(chosen, method))
        if len(found) > count:
            break
    if len(found) == 1:
        raise refused or InputError("the space holds nothing but the base's own values; give it others to try")
    return list(found.values())[1:]


def place(method: Any, chosen: Mapping[str, Any]) -> Any:
    """Return the method with these settings, all at once: some are right only together."""
    own: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in chosen.items():
        part, _, field = name.partition(".")
        if name == SCALE:
            own[part] = tuple(replace(kernel, sigma=_short(kernel.sigma * value)) for kernel in method.bank.kernels)
        elif field:
            inner.setdefault(part, {})[field] = value
        else:
            own[part] = value
    own |= {part: build(_part(method, part), values) for part, values in inner.items()}
    return build(method, own)


def _part(method: Any, name: str) -> Any:
    """Return what a method has under a name: its learner and loss also where they are the usual ones."""
    usual = {"learner": method.learner, "loss": method.objective}
    return usual[name] if name in usual else method.settings().get(name)


def _value(method: Any, name: str) -> Any:
    part, _, field = name.partition(".")
    if name == SCALE:
        return 1.0
    return getattr(_part(method, part), field) if field else method.settings()[part]


def _one(rng: np.random.Generator, values: Sequence[Any], like: Any) -> Any:
    if isinstance(values, list):
        return values[rng.integers(len(values))]
    number = float(np.exp(rng.uniform(*np.log(values))))
    return round(number) if isinstance(like, int) and not isinstance(like, bool) else _short(number)


def _short(number: float) -> float:
    """Return a number rounded to three digits, which is easier to read."""
    return float(f"{number:.3g}")
