"""What a run was, as JSON: its settings, its graph and its samples by digest, and the versions that ran it."""

import dataclasses
import hashlib
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from omkl.data import Stream, Table
from omkl.settings import values
from omkl.topology import Schedule, Topology

MOST_EDGES = 5000  # of a graph of the user's own that go into the record


def describe(thing: Any, other: Callable[[Any], str] = repr) -> Any:
    """Return a setting as JSON: a dataclass as its name and settings, an array by its digest, the rest by ``other``."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        given = {name: describe(value, other) for name, value in values(thing).items()}
        return {"name": getattr(thing, "name", type(thing).__name__)} | given
    if isinstance(thing, list | tuple):
        return [describe(item, other) for item in thing]
    if isinstance(thing, np.ndarray):
        return {"shape": list(thing.shape), "sha256": hashlib.sha256(thing.tobytes()).hexdigest()}
    return thing if isinstance(thing, str | int | float | bool | None) else other(thing)


def describe_topology(topology: Any, turns: Sequence[Topology]) -> Any:
    """Return a topology by its name, or its graphs by what they are made of."""
    if isinstance(topology, str):
        return topology
    if isinstance(topology, Schedule):
        both = zip(topology.graphs, turns, strict=True)
        return {"name": "schedule", "graphs": [describe_topology(one, [turn]) for one, turn in both]}
    graph, edges = turns[0], turns[0].graph.edges
    digest = hashlib.sha256(edges.tobytes() + graph.weights.tobytes()).hexdigest()
    record: dict[str, Any] = {"name": graph.graph.name, "weights": graph.rule, "links": len(edges), "sha256": digest}
    if len(edges) <= MOST_EDGES:
        record["edges"] = edges.tolist()
        if graph.graph.positions is not None:
            record["positions"] = graph.graph.positions.tolist()
    return record


def describe_data(data: Any, stream: Stream) -> Any:
    """Return a data set by its name, or a stream by its shape and digest."""
    if isinstance(data, str):
        return data
    digest = hashlib.sha256(stream.X.astype(np.float32, copy=False).tobytes() + stream.y.tobytes()).hexdigest()
    record: dict[str, Any] = {"shape": list(stream.X.shape), "sha256": digest}
    if isinstance(data, Table) and data.encoding is not None:
        record |= {"name": data.name, "table": data.encoding.record(), "notes": list(data.notes)}
    return record


def versions() -> dict[str, str]:
    """Return the versions of what ran, and the device."""
    found = {"omkl": "not installed"}
    for name in ("omkl", "numpy", "jax", "numba"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found | {"python": platform.python_version(), "platform": platform.platform(), "device": device()}


def device() -> str:
    """Return what computes: JAX is asked where it is loaded, and is not loaded for it."""
    jax = sys.modules.get("jax")
    return "cpu" if jax is None else str(jax.devices()[0].device_kind)
