"""A point of a sweep: one simulation, and the settings that it is known by."""

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from omkl import data
from omkl import topology as topologies
from omkl.errors import InputError, pick
from omkl.methods import named, suited
from omkl.simulator.description import describe
from omkl.simulator.simulation import simulate


@dataclass(frozen=True, eq=False)
class Point:
    """One simulation of a sweep: the arguments of ``simulate``, and what stands for them in records, as JSON."""

    arguments: Mapping[str, Any]
    settings: dict[str, Any]

    @cached_property
    def id(self) -> str:
        """The digest of the settings."""
        return digest(self.settings)

    @cached_property
    def program(self) -> str:
        """What points that run the same compiled program have in common."""
        free = ("topology", "weights", "faults", "seed", "shuffle", "record_every")
        return digest({key: value for key, value in self.settings.items() if key not in free})


def point(arguments: Mapping[str, Any], **known: Any) -> Point:
    """Return the point of some arguments of ``simulate``; ``known`` describes those that do not describe themselves."""
    parameters = inspect.signature(simulate).parameters
    defaults = {name: one.default for name, one in parameters.items() if name not in ("progress", "watch")}
    for name in arguments:
        pick("argument", name, defaults)
    given = defaults | dict(arguments)
    if given["data"] is inspect.Parameter.empty:
        raise InputError("data is missing; a simulation needs a stream to learn; pass data='banana'")
    method, own = named(given["method"]), None
    if isinstance(given["data"], str):
        chosen = data.known(given["data"])
        method, own = suited(method, chosen.loss), chosen.graph and "its own"
    elif "data" not in known:
        given["data"] = {"name": "table", "sha256": fingerprint(*given["data"][:2])}
    if given["topology"] is None:
        given["topology"] = own or "path"
    given["method"] = describe(method) | {"loss": describe(method.objective)}
    if not isinstance(given["topology"], str) and "topology" not in known:
        turns = topologies.turns(given["topology"], given["nodes"], given["weights"])
        arrays = [array for turn in turns for array in (turn.graph.edges, turn.weights)]
        name = turns[0].graph.name if len(turns) == 1 else "schedule"
        given["topology"] = {"name": name, "sha256": fingerprint(*arrays)}
    given |= {name: describe(given[name]) for name in ("faults", "partition")}
    if given["rounds"] is None:
        del given["rounds"]  # as in records from before there was such a setting
    made = Point(arguments, given | known)
    if " at 0x" in json.dumps(made.settings):
        raise InputError("a setting is described by its address in memory; a record needs a lasting name; add __repr__")
    return made


def unique(points: Iterable[Point | Mapping[str, Any]]) -> list[Point]:
    """Return the points, each once."""
    made = [one if isinstance(one, Point) else point(one) for one in points]
    return list({one.id: one for one in made}.values())


def fingerprint(*arrays: Any) -> str:
    """Return a digest of arrays' shapes and values."""
    values = [np.asarray(array, dtype=np.float64) for array in arrays]
    return hashlib.sha256(b"".join(str(one.shape).encode() + one.tobytes() for one in values)).hexdigest()[:16]


def digest(settings: Any) -> str:
    """Return the digest of settings, whatever their order."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
