"""How fast gossip mixes under each rule for its weights: (1 - l_2) / beta, and the spectral gap rho and beta = |I - W|.

The consensus step gamma scales I - W, and must shrink as beta grows: the first is what a rule is worth once gamma fits,
whatever its scale; rho what it is worth at gamma = 1. A star marks a W with negative entries, which nodes refuse.

Run from the repository's root: python -m benchmarks.weights
"""

import argparse
from collections.abc import Callable

import numpy as np
from benchmarks import report, scale

from omkl import topology
from omkl.errors import InputError, MissingExtraError
from omkl.theory import beta, spectral_gap
from omkl.topology import GRAPHS, WEIGHTS, Graph, GraphLike, Topology
from omkl.topology.graphs import TOLERANCE

SPARSE = 1.3  # expected links of a node in the sparse random graph, in units of ln J


def sparse(nodes: int) -> Graph:
    """Return the first connected graph of independent links that is hardly more than connected."""
    p = min(1.0, SPARSE * np.log(nodes) / nodes)
    drawn = (topology.erdos_renyi(nodes, p, seed) for seed in range(1000))
    return next(graph for graph in drawn if not graph.components.any())


def tree(nodes: int) -> Graph:
    """Return a tree grown at random: each node linked to one of those before it."""
    parents = (np.random.default_rng(0).random(nodes - 1) * np.arange(1, nodes)).astype(np.int64)
    return Graph(nodes, np.stack([parents, np.arange(1, nodes)], axis=1), "tree")


def dumbbell(nodes: int) -> Graph:
    """Return two complete graphs of half the nodes each, and one link between them."""
    one, other = topology.complete(nodes // 2).edges, topology.complete(nodes - nodes // 2).edges + nodes // 2
    bridge = [[nodes // 2 - 1, nodes // 2]]
    return Graph(nodes, np.concatenate([one, other, bridge]), "dumbbell")


FAMILIES: dict[str, Callable[[int], Graph]] = {
    **{name: GRAPHS[name] for name in ("path", "ring", "grid", "star", "complete", "erdos_renyi", "geometric")},
    "sparse": sparse, "regular": scale.regular, "power law": scale.preferential, "tree": tree, "dumbbell": dumbbell,
}  # fmt: skip


def cell(rule: Callable[[GraphLike], Topology], graph: Graph) -> str:
    """Return (1 - l_2) / beta, and rho and beta, of a rule; a dash where it does not serve the graph."""
    try:
        built = rule(graph)
    except (InputError, MissingExtraError):
        return "-"
    negative = min(built.weights.min(), built.self_weights.min()) < -TOLERANCE
    slowest, fastest = built.ends
    return f"{slowest / fastest:.4f} ({spectral_gap(built):.4f}, {beta(built):.2f}){'*' if negative else ' '}"


def rows(nodes: int) -> list[report.Row]:
    made = {name: make(nodes) for name, make in FAMILIES.items()}
    return [{"graph": name} | {rule: cell(WEIGHTS[rule], graph) for rule in WEIGHTS} for name, graph in made.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    nodes: int = parser.parse_args().nodes
    note = f"{nodes} nodes: (1 - l_2) / beta (rho, beta), * where W has negative entries"
    report.finish("weights", rows(nodes), note)


if __name__ == "__main__":
    main()
