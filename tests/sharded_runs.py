"""Run on four virtual devices: how far runs on one and on four lie apart, as JSON. See test_sharding.py."""

import json
import sys
from typing import Any, NamedTuple

import jax
import networkx as nx
import numpy as np
from typer.testing import CliRunner

import omkl
from omkl import DOMKL, QSGD, Basis, Choco, Complete, Gossip, Local, Shared, gaussian, topology
from omkl.cli.app import app
from omkl.methods import Neighbors
from omkl.simulator import engine, halo
from omkl.simulator import rounds as chunked
from omkl.simulator.sharding import place
from omkl.topology import Graph, Topology

PARTS = ("loss", "theta", "log_weights", "weights", "accuracy", "disagreement", "pooled_loss", "bits", "link_bits")

EXACT = Gossip(eta=0.5, gamma=0.3, quantizer=None)
COARSE = Gossip(eta=1.0, gamma=0.3, quantizer=QSGD(bits=1, rescale=True))  # another dither would be another run


class Pass(NamedTuple):
    """Cases that are run together, first on one device, then spread over four."""

    nodes: int
    cases: dict[str, tuple[Any, Any]]
    shard: str | None = "nodes"
    seeds: int = 1
    rounds: int = 30
    chunked: bool = False
    """Several chunks, of other lengths on four devices than on one: each length is a program to compile."""


def shuffled_path(nodes: int) -> Graph:
    """Return a path whose nodes are numbered at random: only an order by nearness cuts few of its links."""
    names = np.random.default_rng(1).permutation(nodes)
    return Graph(nodes, np.stack([names[:-1], names[1:]], axis=1))


GRAPHS = {
    "path": (EXACT, "path"),
    "ring": (EXACT, "ring"),
    "star": (EXACT, "star"),
    "clipped": (Gossip(eta=0.5, gamma=0.3, quantizer=None, clip=0.2), "star"),
    "random 4-regular": (EXACT, nx.random_regular_graph(4, 82, seed=0)),
}
METHODS = {
    "gossip": (EXACT, "ring"),
    "local": (Local(eta=0.5), "ring"),
    "complete": (Complete(eta=0.5, quantizer=None), "complete"),
    "fresh choco": (Choco(eta=0.5, gamma=0.3, quantizer=None, fresh=True), "star"),
}
ITERATED = {"domkl": (DOMKL(), "path")}
QUANTIZED = {
    "quantized gossip": (Gossip(eta=0.5, gamma=0.3, quantizer=QSGD(bits=4)), "ring"),
    "quantized complete": (Complete(eta=0.5, quantizer=QSGD(bits=4)), "complete"),
    "quantized choco": (Choco(eta=0.5, gamma=0.3, quantizer=QSGD(bits=4)), shuffled_path(10)),
}
PASSES = {
    "do not divide": Pass(82, GRAPHS),
    "near": Pass(100, {"shuffled path": (EXACT, shuffled_path(100))}, chunked=True),
    "methods": Pass(10, METHODS, seeds=2),
    "methods by seeds": Pass(10, METHODS | QUANTIZED, None, seeds=6),
    "quantizers": Pass(10, QUANTIZED, chunked=True),
    "coarse": Pass(70, {"dither": (COARSE, shuffled_path(70))}, rounds=12, chunked=True),
    "idle device": Pass(5, {"path": (EXACT, "path")}, None),
    "few nodes": Pass(3, {"ring": (EXACT, "ring")}),
    "one node": Pass(1, {"gossip": (EXACT, "path"), "complete": METHODS["complete"]}),
}

SETTINGS: dict[str, Any] = {
    "kernels": gaussian(0.3, 0.6),
    "features": 30,
    "basis": Basis(rank=10, rows=60),
    "sigma": "median",
    "learner": Shared(),
}
CALIBRATED = {"gossip": (Gossip(**SETTINGS, gamma=0.3, quantizer=None), "ring"), "local": (Local(**SETTINGS), "ring")}
PASSES |= {
    "in a basis": Pass(10, CALIBRATED),
    "in a basis by seeds": Pass(5, CALIBRATED, "seeds", seeds=6, chunked=True),
}

AS_USERS_COMPILE = {"domkl": Pass(10, ITERATED, seeds=2), "domkl by seeds": Pass(10, ITERATED, None, seeds=6)}
"""What rounds alike on one device and on four by the loops that XLA writes for users only."""

USUAL, SMALL = (chunked.CHUNK_BYTES, chunked.INPUT_BYTES), (2**16, 2**12)

DISCONNECTED = {
    "two rings and loners": nx.disjoint_union_all([nx.cycle_graph(6), nx.cycle_graph(5), nx.empty_graph(3)]),
    "two stars": nx.disjoint_union(nx.star_graph(50), nx.star_graph(20)),
    "no links": nx.empty_graph(7),
}


def blobs(rounds: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(rounds, nodes, 3)).astype(np.float32)
    return X, np.where(np.sin(2 * X[..., 0]) + X[..., 1] * X[..., 2] > 0, 1, -1)


def apart(one: Any, many: Any) -> float:
    return float(np.abs(one - many).max() / (np.abs(one).max() or 1))


def compare(one_pass: Pass) -> dict[str, dict[str, Any]]:
    """Return, for every case, how far each part of its results lies from that of one device."""
    data = blobs(one_pass.rounds, one_pass.nodes)
    chunked.CHUNK_BYTES, chunked.INPUT_BYTES = SMALL if one_pass.chunked else USUAL
    one = omkl.compare(data, one_pass.cases, seeds=one_pass.seeds, pooled=True)
    many = omkl.compare(data, one_pass.cases, seeds=one_pass.seeds, pooled=True, devices=4, shard=one_pass.shard)
    return {
        name: {part: apart(getattr(one[name], part), getattr(many[name], part)) for part in PARTS}
        | {"devices": many[name].config["devices"]}
        for name in one_pass.cases
    }


def mix_disconnected(graph: nx.Graph) -> float:
    """Networks must be connected, but links may fail, so mixing must not rely on it."""
    built = object.__new__(Topology)
    parts = topology.from_networkx(graph)
    for name, value in (("graph", parts), ("weights", np.linspace(0.1, 0.3, len(parts.edges)))):
        object.__setattr__(built, name, value)
    theta, hidden = np.random.default_rng(0).normal(size=(2, parts.nodes, 2, 3, 1, 4)).astype(np.float32)
    ids, weights = built.neighbors()
    mesh = jax.sharding.Mesh(np.array(jax.devices()), (halo.AXIS,))
    order = halo.partition(parts, 4)
    mixed = jax.jit(halo.network(built, np.argsort(order), mesh).mix, static_argnums=2)(
        theta[order], hidden[order], 0.7
    )
    return apart(Neighbors(ids, weights.astype(np.float32)).mix(theta, hidden, 0.7)[order], np.asarray(mixed))


def state_blocks() -> list[list[int]]:
    """Shapes of the blocks that each of the four devices holds of inputs, and of a state."""
    where = place(4, "nodes", [topology.build("path", 10)], 1)
    arrays = where.put(np.zeros((7, 10, 2)), nodes=1), where.start(lambda: jax.numpy.zeros((10, 1, 5)))
    return [list(array.addressable_shards[0].data.shape) for array in arrays]


def main() -> None:
    jax.config.update("jax_numpy_dtype_promotion", "strict")  # type: ignore[no-untyped-call]
    engine.is_small = lambda *_: False  # one device by JAX too
    if sys.argv[1:] == ["as users compile"]:
        print(json.dumps({name: compare(one_pass) for name, one_pass in AS_USERS_COMPILE.items()}))
        return
    settings = ["--data", "banana", "--nodes", "10", "--method", "paper", "--devices", "4"]
    told = CliRunner().invoke(app, ["simulate", *settings]).stderr
    found = {
        "passes": {name: compare(one_pass) for name, one_pass in PASSES.items()},
        "disconnected": {name: mix_disconnected(graph) for name, graph in DISCONNECTED.items()},
        "blocks": state_blocks(),
        "told": told,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
