"""A sample's way through the code: functions of omkl that are called, files they are in, changes from file to file.

Of a round of a network, over arrays; of a whole round of a node, from its sample and its neighbors' frames to its own
frame, compiled loops counting as one call each; and of a row of an estimator.

python -m benchmarks.way
"""

import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from benchmarks import network

import omkl
from omkl.data import Stream
from omkl.methods import Neighbors, Round
from omkl.node.protocol import Protocol
from omkl.river import OMKLClassifier

SOURCE = str(Path(omkl.__file__).parent)


class Way(NamedTuple):
    functions: int
    files: int
    switches: int


def traced(act: Callable[[], Any]) -> Way:
    """Return what an act calls, helpers of the array library left out."""
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE) and not file.endswith("arrays.py"):
            calls.append((file, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    files = [file for file, _ in calls]
    return Way(len(set(calls)), len(set(files)), sum(a != b for a, b in itertools.pairwise(files)))


def round_of(method: omkl.Gossip) -> Way:
    """Return the way of one round of a network in NumPy."""
    graph = omkl.topology.build("ring", 5)
    index, weights = graph.neighbors()
    network, rng = Neighbors(index, weights.astype(np.float32)), np.random.default_rng(0)
    method = method.on(graph)
    made = method.bank.draw(2, 0, rng.normal(size=(600, 2)))
    spectrum = made.spectrum
    shape = (5, method.bank.members)
    state = method.init(np, (5,), 1, spectrum)
    width = method.bank.width
    uniforms = rng.uniform(size=(*shape, 1, method.sent)).astype(np.float32) if method.dithered else None
    z, y = rng.normal(size=(*shape, width)).astype(np.float32), np.ones((5, 1), np.float32)
    for k in range(2):
        state, _ = method.step(state, Round(z, y, uniforms, k), network)
    return traced(lambda: method.step(state, Round(z, y, uniforms, 2), network))


def node_of(method: omkl.Gossip, compiled: bool, rounds: int = 8) -> Way:
    """Return the way of the last of some rounds of a node with two neighbors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rounds, 3, 2)).astype(np.float32)
    samples = Stream(X, np.where(X[..., 0] * X[..., 1] > 0, 1, -1))
    config = network.network(method.replace(pace=None).on(omkl.topology.build("ring", 3)), "ring", samples)
    *before, one, other, _, _ = network.heard(config, samples, rounds)
    node = Protocol(replace(config.role("n0"), compiled=compiled), 0, 0.0)
    for peer in node.links:
        node.came(peer, 0.0)
    *first, last = [(x, node.learning.targets(y)) for x, y in zip(X[:, 0], samples.y[:, 0], strict=True)]
    for x, y in first:
        node.take(x, y, 0.0)
    for peer, data in before:
        node.receive(peer, data, 0.0)
    node.outgoing()

    def act() -> None:
        node.take(*last, 0.0)
        for peer, data in (one, other):
            node.receive(peer, data, 0.0)
        assert len(node.outgoing()) == 1

    assert node.round == rounds - 1
    return traced(act)


def row() -> Way:
    """Return the way of a row in river's door, after the first rows."""
    rng, model = np.random.default_rng(0), OMKLClassifier()
    rows = [({"a": float(a), "b": float(b)}, bool(a * b > 0)) for a, b in rng.normal(size=(600, 2))]
    for x, label in rows:
        model.learn_one(x, label)
    return traced(lambda: model.learn_one(*rows[0]))


def main() -> None:
    for name, way in (
        ("a round, default", round_of(omkl.recommended())),
        ("a round, paper", round_of(omkl.paper())),
        ("a node's round, default", node_of(omkl.recommended(), True)),
        ("  over arrays", node_of(omkl.recommended(), False)),
        ("a node's round, paper", node_of(omkl.paper(), True)),
        ("  over arrays", node_of(omkl.paper(), False)),
        ("a row of an estimator", row()),
    ):
        print(f"{name:24} {way.functions:4} functions {way.files:4} files {way.switches:4} switches")


if __name__ == "__main__":
    main()
