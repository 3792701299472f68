"""A point of a sweep: one simulation, and the settings that it is known by."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from omkl import data
from omkl import topology as topologies
from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.methods import suited
from omkl.settings import build
from omkl.simulator.description import describe


@dataclass(frozen=True, eq=False)
class Point:
    """One simulation of a sweep: the experiment, and what stands for it in records, as JSON."""

    experiment: Experiment
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


def point(given: Experiment | Mapping[str, Any], **known: Any) -> Point:
    """Return the point of an experiment, or of its attributes; ``known`` tells what does not describe itself."""
    one: Experiment = given if isinstance(given, Experiment) else build(Experiment, given)
    method, own = one.method, None
    if isinstance(one.data, str):
        chosen = data.known(one.data)
        method, own = suited(method, chosen.loss), chosen.graph and "its own"
    elif "data" not in known:
        known["data"] = {"name": "table", "sha256": fingerprint(*one.data[:2])}
    if one.topology is None:
        known["topology"] = own or "path"
    elif not isinstance(one.topology, str) and "topology" not in known:
        turns = topologies.turns(one.topology, one.nodes, one.weights)
        arrays = [array for turn in turns for array in (turn.graph.edges, turn.weights)]
        name = turns[0].graph.name if len(turns) == 1 else "schedule"
        known["topology"] = {"name": name, "sha256": fingerprint(*arrays)}
    known["method"] = describe(method, _lasting) | {"loss": describe(method.objective, _lasting)}
    told = {field.name: getattr(one, field.name) for field in fields(one)} | known
    if told["rounds"] is None:
        del told["rounds"]  # as in records from before there was such a setting
    return Point(one, {name: value if name in known else describe(value, _lasting) for name, value in told.items()})


def _lasting(thing: Any) -> str:
    """Return what a thing prints; refuse one that prints where it is in memory."""
    if callable(thing) or type(thing).__repr__ is object.__repr__:  # type: ignore[comparison-overlap]
        raise InputError(f"a setting is {thing!r}, its address in memory; a record needs a lasting name; add __repr__")
    return repr(thing)


def unique(points: Iterable[Point | Experiment | Mapping[str, Any]]) -> list[Point]:
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
