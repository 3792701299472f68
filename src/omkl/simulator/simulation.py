"""The first door: simulate a network, many seeds at once."""

import dataclasses
import hashlib
import platform
import warnings
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from omkl import features
from omkl import topology as topologies
from omkl.data import Stream, as_stream
from omkl.errors import InputError, pick
from omkl.methods import METHODS, Gossip, Method
from omkl.simulator import engine
from omkl.simulator.networks import network
from omkl.simulator.result import Result

FAR = 30  # inputs this many bandwidths long are all strangers to each other


def simulate(
    data: Any,
    topology: Any = "path",
    nodes: int | None = None,
    method: Method | str | None = None,
    *,
    weights: str = "metropolis",
    seeds: int = 1,
    seed: int = 0,
    shuffle: int | None = 0,
    record_every: int = 1,
    progress: engine.Progress | None = None,
) -> Result:
    """Return the curves and final models of a network that learns a stream.

    Parameters
    ----------
    data
        A name such as ``"banana"``; arrays ``(X, y)`` with X ``(n, d)``, dealt out to the nodes; or a stream ``(X, y)``
        with X ``(T, J, d)`` and y ``(T, J)``.
    topology
        A name such as ``"path"``, a graph of ``omkl.topology``, a networkx graph, an adjacency or a gossip matrix.
    nodes
        J; may be left out where data or topology tell it.
    method
        ``Gossip(...)``, ``Local(...)``, ... or a name, with its defaults; None is ``Gossip()``.
    weights
        Rule for the gossip weights of a graph.
    seeds, seed
        Runs ``seed ... seed + seeds - 1``: each has its own features and dither. A run depends on its own seed alone.
    shuffle
        Seed of the order in which a table is dealt out, the same for all runs; None keeps the order of the rows.
    record_every
        Record every k-th round.
    progress
        Called with the rounds done and the rounds in all.

    Examples
    --------
    >>> import omkl
    >>> result = omkl.simulate("banana", "ring", nodes=20, method=omkl.Gossip(eta=1, gamma=0.5), seeds=2)
    >>> result.loss.shape
    (2, 265)
    """
    for name, value in (("seeds", seeds), ("record_every", record_every)):
        if value < 1:
            raise InputError(f"{name} is {value}; it must be at least 1")
    method = _method(method)
    if nodes is None and not isinstance(topology, str):
        nodes = topologies.build(topology, weights=weights).nodes
    stream, _ = as_stream(data, nodes, shuffle)
    rounds, count, dimension = stream.X.shape
    if record_every > rounds:
        raise InputError(f"record_every is {record_every}; the stream has {rounds} rounds; record at least one of them")
    graph = topologies.build(topology, count, weights)
    targets = method.objective.encode(stream.y)
    if targets.ndim != 3:
        raise InputError(f"y has shape {stream.y.shape}; {method.objective.name} loss takes one label a sample")
    method.check()
    _warn_if_far(stream, method)
    runs = list(range(seed, seed + seeds))
    frequencies = np.stack([features.draw(method.kernels, method.features, dimension, run) for run in runs])
    state, metrics = engine.run(method, stream.X, targets, frequencies, runs, network(graph), progress)
    theta, log_weights = (np.asarray(part) for part in method.models(state))
    recorded = np.arange(record_every - 1, rounds, record_every)
    loss, accuracy, disagreement, kernel_weights = (np.moveaxis(curve[recorded], 1, 0) for curve in metrics)
    message = method.message_bits(targets.shape[-1])
    settings = {"weights": weights, "seeds": seeds, "seed": seed, "shuffle": shuffle, "record_every": record_every}
    return Result(
        config={
            "data": _describe_data(data, stream),
            "topology": describe(topology),
            "nodes": count,
            "method": describe(method) | {"loss": describe(method.objective)},
            **settings,
            "versions": _versions(),
        },
        seeds=np.array(runs),
        rounds=recorded,
        loss=loss,
        accuracy=accuracy,
        disagreement=disagreement,
        bits=np.full(loss.shape, message * int((graph.degrees > 0).sum())),
        link_bits=np.full(loss.shape, message * int(graph.degrees.sum())),
        weights=kernel_weights,
        theta=theta,
        log_weights=log_weights,
        frequencies=frequencies,
    )


def describe(thing: Any) -> Any:
    """Return a setting as JSON: a dataclass as its name and fields, anything opaque by its type."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        values = {field.name: describe(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
        return {"name": getattr(thing, "name", type(thing).__name__)} | values
    if isinstance(thing, list | tuple):
        return [describe(item) for item in thing]
    if isinstance(thing, np.ndarray):
        return thing.tolist() if thing.size <= 10_000 else f"array {thing.shape}"
    return thing if isinstance(thing, str | int | float | bool | None) else repr(thing)


def _method(method: Method | str | None) -> Method:
    if isinstance(method, str):
        return pick("method", method, METHODS)()
    return Gossip() if method is None else method


def _describe_data(data: Any, stream: Stream) -> Any:
    if isinstance(data, str):
        return data
    digest = hashlib.sha256(stream.X.tobytes() + stream.y.tobytes()).hexdigest()
    return {"shape": list(stream.X.shape), "sha256": digest}


def _warn_if_far(stream: Stream, method: Method) -> None:
    length = float(np.median(np.linalg.norm(stream.X.reshape(-1, stream.X.shape[-1])[:1000], axis=-1)))
    widest = max(kernel.sigma for kernel in method.kernels)
    if length > FAR * widest:
        warnings.warn(
            f"a typical input has length {length:.3g}, the widest bandwidth is {widest:g}: to these kernels all "
            "samples are strangers; standardize the inputs or use larger sigmas",
            stacklevel=3,
        )


def _versions() -> dict[str, str]:
    return {
        "omkl": version("omkl"),
        "numpy": np.__version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
    }
