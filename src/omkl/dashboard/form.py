"""What can be chosen on the page, and the flags of ``omkl simulate`` that it becomes."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from omkl import config
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
    table = _table({name: value for name, value in chosen.items() if value is not None})
    config.experiment(table)  # what it refuses is told before anything is started
    return [
        word
        for name, value in table.items()
        for word in (f"--{name}", value if isinstance(value, str) else _toml(value))
    ]


def _table(chosen: dict[str, Any]) -> config.Table:
    """Return what was chosen as a TOML file would hold it."""
    method: config.Table = {name: chosen.pop(name) for name in ("method", "learner", "eta", "gamma") if name in chosen}
    method["name"] = method.pop("method")
    if {"learner", "eta"} <= method.keys():
        method["learner"] = {"name": method["learner"], "eta": method.pop("eta")}
    if "bits" in chosen:
        method["quantizer"] = {"name": "qsgd", "bits": chosen.pop("bits"), "rescale": True}
    links = chosen.pop("links", 0)
    return chosen | ({"faults": {"links": links}} if links else {}) | {"method": method}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def _check_number(name: str, value: Any) -> None:
    least, most = LIMITS[name]
    kinds = (int,) if name in WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if name in WHOLE else "a number"
        raise InputError(f"{name} is {value!r}; it must be {what} from {least} to {most}; change it")
