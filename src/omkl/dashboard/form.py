"""What can be chosen on the page, and the flags of ``omkl simulate`` that it becomes."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from omkl.data import DATA_SETS, status
from omkl.errors import InputError, pick, unknown
from omkl.learners import LEARNERS
from omkl.methods import PRESETS
from omkl.topology import GRAPHS

NAMES: dict[str, Mapping[str, Any]] = {
    "data": DATA_SETS, "topology": GRAPHS, "method": PRESETS, "learner": LEARNERS,
}  # fmt: skip
LIMITS: dict[str, tuple[float, float]] = {
    "nodes": (1, 200), "rounds": (1, 5000), "bits": (1, 8), "eta": (0.0001, 100), "gamma": (0.0001, 1), "links": (0, 1),
    "seed": (0, 2**31),
}  # fmt: skip
WHOLE = ("nodes", "rounds", "bits", "seed")
RATED = ("sgd", "adagrad")  # learners that take a rate
DEFAULTS = {"data": "banana", "topology": "geometric", "nodes": 20, "method": "recommended", "seed": 0}


@cache
def options() -> dict[str, Any]:
    """Return what can be chosen; ``nodes`` of data are those whose rows belong to nodes."""
    at_hand = [one for one in DATA_SETS.values() if status(one.name).place is not None]
    return {
        "data": [{"name": one.name, "task": one.task, "nodes": one.nodes} for one in at_hand],
        "topology": list(GRAPHS),
        "method": list(PRESETS),
        "learner": list(LEARNERS),
        "limits": {name: list(limits) for name, limits in LIMITS.items()},
        "defaults": DEFAULTS,
        "missing": "" if at_hand else f"no data set is at hand; {status(str(DEFAULTS['data'])).remedy}",
    }


def flags(form: Any) -> list[str]:
    """Return the flags for what was chosen; refuse what is not offered, and what would fail or be of no effect."""
    if not isinstance(form, dict):
        raise InputError(
            f"a {type(form).__name__} given; a simulation is described by an object; send its settings by name"
        )
    chosen = DEFAULTS | {name: value for name, value in form.items() if value is not None}
    for name, value in chosen.items():
        if name in NAMES:
            pick(name, str(value), NAMES[name])
        elif name in LIMITS:
            _check_number(name, value)
        else:
            raise InputError(unknown("setting", str(name), [*NAMES, *LIMITS]))
    own = DATA_SETS[str(chosen["data"])]
    if own.nodes is not None:
        chosen |= {"nodes": own.nodes, "topology": None}
    most = own.n // chosen["nodes"]
    if (rounds := chosen.get("rounds", 1)) > most:
        raise InputError(f"rounds is {rounds}; {own.n:,} samples are {most:,} rounds here; leave rounds out for all")
    _check_rate(chosen)
    return [flag for name, value in chosen.items() if value is not None for flag in _flag(name, value, chosen)]


def _check_number(name: str, value: Any) -> None:
    least, most = LIMITS[name]
    kinds = (int,) if name in WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if name in WHOLE else "a number"
        raise InputError(f"{name} is {value!r}; it must be {what} from {least} to {most}; change it")


def _check_rate(chosen: Mapping[str, Any]) -> None:
    learner, method = chosen.get("learner"), chosen["method"]
    if "eta" in chosen and learner not in RATED and (learner is not None or method != "letter"):
        raise InputError(
            f"eta is {chosen['eta']}; {learner or method} has no such rate; leave eta out, or choose sgd or adagrad"
        )


def _flag(name: str, value: Any, chosen: Mapping[str, Any]) -> list[str]:
    if name == "bits":
        return ["--quantizer", f'{{name="qsgd", bits={value}, rescale=true}}']
    if name == "links":
        return ["--faults", f"{{links={float(value)}}}"] if value else []
    if name == "learner" and "eta" in chosen:
        return ["--learner", f'{{name="{value}", eta={float(chosen["eta"])}}}']
    if name == "eta" and "learner" in chosen:
        return []
    return [f"--{name}", str(value)]
