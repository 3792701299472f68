import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import Faults, Gossip, Local, noise
from omkl.errors import InputError
from omkl.simulator import engine, rounds, scans
from omkl.simulator.changing import Changing, changing
from omkl.simulator.networks import Dense, Edges, Lists
from omkl.topology import Graph, Schedule, Topology, build, metropolis, ring, turns, union
from omkl_lab import sweeps
from tests import numpy_run
from tests.conftest import assert_same_but_for_flips
from tests.test_simulator import blobs


class Matrix(NamedTuple):
    """A network stated as W."""

    W: np.ndarray

    def mix(self, theta: Any, hidden: Any, gamma: float, radius: float | None = None) -> Any:
        apart = hidden[None] - hidden[:, None]
        distance = np.linalg.norm(apart, axis=(-2, -1), keepdims=True)
        if radius is not None:
            apart = apart * np.minimum(1, radius / np.maximum(distance, 1e-30))
        pull = np.einsum("ij,ij...->i...", self.W, apart)
        return theta + gamma * pull.astype(np.float32)

    def degrees(self, nodes: int) -> Any:
        return np.count_nonzero(self.W - np.diag(np.diag(self.W)), axis=1)

    def heard(self) -> float:
        return 1.0

    def weight(self, nodes: int) -> Any:
        return self.W.sum(axis=1) - np.diag(self.W)


def drawn(seed: int, t: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    pair = noise.fold(noise.fold(noise.fold(noise.key(seed, "faults"), t), i[:, None]), j[:, None])
    uniforms: np.ndarray = (noise.words(pair, 1)[:, 0] >> 8) / 2**24
    return uniforms


def live(topology: Topology, faults: Faults, seed: int, t: int) -> np.ndarray:
    """Return which links of a topology are up, from the definition."""
    i, j = topology.graph.edges.T
    every = np.arange(topology.nodes)
    failed = drawn(seed, t, i, j) < faults.links if isinstance(faults.links, float) else faults.links[t]
    asleep = drawn(seed, t, every, every) < faults.nodes if isinstance(faults.nodes, float) else faults.nodes[t]
    return np.asarray(~(failed | asleep[i] | asleep[j]))


def stated(topology: Topology, up: np.ndarray) -> np.ndarray:
    """Return W with the weight of every lost link given back to both its ends."""
    W = topology.matrix()
    for (i, j), weight in zip(topology.graph.edges[~up], topology.weights[~up], strict=True):
        W[[i, j], [j, i]] = 0
        W[i, i] += weight
        W[j, j] += weight
    return W


def given_faults(links: int, nodes: int, rounds: int) -> Faults:
    rng = np.random.default_rng(1)
    return Faults(links=rng.uniform(size=(rounds, links)) < 0.5, nodes=rng.uniform(size=(rounds, nodes)) < 0.1)


def weights_of(network: Any, nodes: int, seeds: int, rounds: int) -> np.ndarray:
    """Return the W that a network mixes with, ``(T, S, J, J)``."""
    units = jnp.broadcast_to(jnp.eye(nodes)[:, None, None, None, :], (nodes, seeds, 1, 1, nodes))
    mixed = jax.jit(jax.vmap(lambda t: network.at(t).mix(units, units, 1.0)))(jnp.arange(rounds, dtype=jnp.uint32))
    return np.moveaxis(np.asarray(mixed)[:, :, :, 0, 0], 2, 1)


def some_graph(k: int) -> Topology:
    """Return a random connected graph of 2 to 40 nodes, thin or thick, with or without a hub."""
    rng = np.random.default_rng(k)
    nodes = int(rng.integers(2, 41))
    adjacency = np.triu(rng.uniform(size=(nodes, nodes)) < rng.choice([0.02, 0.2, 0.95]), 1)
    adjacency[np.arange(nodes - 1), np.arange(1, nodes)] = True  # a path through all keeps it connected
    adjacency[0, 1:] |= rng.uniform() < 0.4
    return metropolis((adjacency | adjacency.T).astype(int))


@pytest.mark.parametrize("kind", [Lists, Dense, Edges])
@pytest.mark.parametrize("k", range(6))
def test_w_of_a_round_is_symmetric_and_stochastic_and_the_stated_one(
    k: int, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omkl.simulator.changing.are_even", lambda *_: kind is Lists)
    monkeypatch.setattr("omkl.simulator.changing.are_many", lambda *_: kind is Dense)
    topology, rng, seeds = some_graph(k), np.random.default_rng(k), [5, 6, 7]
    faults = Faults(links=float(rng.uniform()), nodes=float(rng.uniform(0, 0.5)))
    if k % 2:
        faults = given_faults(len(topology.graph.edges), topology.nodes, 20)
    network = changing([topology], faults, seeds)
    assert isinstance(jax.eval_shape(network.at, jnp.uint32(0)).links, kind)
    W = weights_of(network, topology.nodes, len(seeds), 20)
    np.testing.assert_array_equal(W, np.swapaxes(W, -1, -2))
    np.testing.assert_allclose(W.sum(axis=-1), 1, atol=1e-6)
    assert (W >= -1e-6).all()
    assert (np.einsum("...ii->...i", W) >= topology.self_weights - 1e-6).all()
    for t in range(20):
        for s, seed in enumerate(seeds):
            np.testing.assert_allclose(W[t, s], stated(topology, live(topology, faults, seed, t)), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "kind"),
    [(["ring", "path"], Lists), (["star", "ring"], Edges), (["complete", "path"], Dense)],
    ids=["lists", "edges", "dense"],
)
def test_mixing_keeps_the_mean_whatever_fails(given: list[str], kind: type, rng: np.random.Generator) -> None:
    built = turns(Schedule(given), 40)
    faults = Faults(links=0.4, nodes=0.2)
    network = changing(built, faults, list(range(3)))
    W = weights_of(network, 40, 3, 4)
    assert isinstance(jax.eval_shape(network.at, jnp.uint32(0)).links, kind)
    theta, hidden = (jnp.asarray(rng.normal(size=(40, 3, 2, 1, 4)).astype(np.float32)) for _ in range(2))
    mix = jax.jit(lambda t: network.at(t).mix(theta, hidden, 0.7))
    for t in range(4):
        mixed = np.asarray(mix(jnp.uint32(t)))
        assert np.abs(mixed - theta).max() > 0.1
        np.testing.assert_allclose(mixed.mean(axis=0), theta.mean(axis=0), atol=1e-6)
        here = built[t % 2]
        np.testing.assert_allclose(W[t, 1], stated(here, live(here, faults, 1, t)), atol=1e-6)


@pytest.mark.parametrize(
    ("topology", "faults"),
    [
        ("path", Faults(links=0.4, nodes=0.1)),
        ("star", Faults(links=0.4)),
        ("ring", given_faults(8, 8, 300)),
        (Schedule(["ring", "star", np.eye(8)]), Faults(links=0.2)),
        (Schedule(["ring", "path"]), given_faults(8, 8, 300)),
    ],
    ids=["drawn", "hub", "given", "schedule", "schedule given"],
)
@pytest.mark.parametrize("clip", [None, 0.2])
def test_equals_numpy_with_the_w_of_every_round(topology: Any, faults: Faults, clip: float | None) -> None:
    X, y = blobs(300, 8)
    method = Gossip(eta=1, gamma=0.5, quantizer=None, clip=clip)
    built = turns(topology, 8)
    every = [tuple(edge) for edge in union(built).edges.tolist()]

    def up(t: int, seed: int) -> np.ndarray:
        here = built[t % len(built)]
        if isinstance(faults.links, float):
            return live(here, faults, seed, t)
        columns = [every.index(tuple(edge)) for edge in here.graph.edges.tolist()]
        return live(here, Faults(links=faults.links[:, columns], nodes=faults.nodes), seed, t)

    message = 8 * (4 + 3 * 40 * 4)
    there = omkl.simulate((X, y), topology, method=method, faults=faults, seed=3, seeds=2)
    for s, seed in enumerate((3, 4)):
        network = [Matrix(stated(built[t % len(built)], up(t, seed))) for t in range(300)]
        here = numpy_run.run(method, X, y, network.__getitem__, seed)
        distance = np.linalg.norm(here.state.theta - there.theta[:, s], axis=-1)
        assert (distance <= 1e-4 * np.linalg.norm(here.state.theta, axis=-1)).all()
        np.testing.assert_allclose(there.loss[s], here.loss.mean(axis=1), atol=1e-5)
        ends = [built[t % len(built)].graph.edges[up(t, seed)] for t in range(300)]
        assert there.link_bits[s].tolist() == [2 * len(one) * message for one in ends]
        assert there.bits[s].tolist() == [len(np.unique(one)) * message for one in ends]


def count(network: Changing, nodes: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many nodes had a link that was up, and how many directed links were, both ``(S, R)``."""
    degrees = jax.lax.map(lambda t: network.at(t).degrees(nodes), jnp.arange(rounds, dtype=jnp.uint32))
    return np.count_nonzero(degrees, axis=1).T, np.asarray(degrees.sum(axis=1)).T


def test_drawn_faults_come_as_often_as_asked() -> None:
    links, nodes = 0.3, 0.2
    network = changing([build("ring", 50)], Faults(links=links, nodes=nodes), list(range(20)))
    heard, up = count(network, 50, 200)
    assert up.mean() / 100 == pytest.approx((1 - links) * (1 - nodes) ** 2, abs=0.004)
    silent = 1 - (1 - links) * (1 - nodes)
    assert heard.mean() / 50 == pytest.approx((1 - nodes) * (1 - silent**2), abs=0.004)
    assert 2 * 50 * 0.2 < up.var() < 2 * 50 * 1.2  # in pairs, and neighbors share a node; all alike would be 2500
    assert (np.abs(np.corrcoef(up) - np.eye(20)) < 0.3).all()
    assert (np.abs(np.corrcoef(up[:, 1:].ravel(), up[:, :-1].ravel()) - np.eye(2)) < 0.08).all()


@pytest.mark.parametrize(
    "method", [Gossip(eta=1, gamma=0.5), omkl.Choco(eta=1, gamma=0.5, fresh=True)], ids=["gossip", "choco"]
)
def test_nothing_fails_is_no_faults_and_all_fails_is_alone(method: Gossip) -> None:
    X, y = blobs(60, 6)
    steady = omkl.simulate((X, y), "ring", method=method, seeds=2)
    for nothing in (Faults(), Faults(links=np.zeros((60, 6), dtype=bool), nodes=np.zeros((60, 6), dtype=bool))):
        same = omkl.simulate((X, y), "ring", method=method, seeds=2, faults=nothing)
        np.testing.assert_allclose(same.loss, steady.loss, atol=1e-4)
        assert_same_but_for_flips(same.bits, steady.bits)
        assert_same_but_for_flips(same.link_bits, steady.link_bits)
    alone = omkl.simulate((X, y), "ring", method=Local(eta=1, kernels=method.bank.kernels), seeds=2)
    for everything in (Faults(links=1), Faults(nodes=1)):
        none = omkl.simulate((X, y), "ring", method=method, seeds=2, faults=everything)
        np.testing.assert_allclose(none.theta, alone.theta, rtol=3e-6, atol=1e-6)  # two executors where steps are fresh
        assert not none.bits.any()
        assert not none.link_bits.any()


def test_a_run_depends_on_its_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(60, 6)
    settings: dict[str, Any] = {"method": Gossip(eta=1, gamma=0.5, quantizer=None), "faults": Faults(0.4, 0.2)}
    monkeypatch.setattr(scans, "cores", lambda: 2)
    many = omkl.simulate((X, y), "ring", seeds=4, seed=11, **settings)
    one = omkl.simulate((X, y), "ring", seed=13, record_every=4, **settings)
    monkeypatch.setattr(rounds, "CHUNK_BYTES", 7 * 4 * 6 * 3 * 20)
    parts = omkl.simulate((X, y), "ring", seed=13, **settings)
    np.testing.assert_allclose(many.theta[:, 2], one.theta[:, 0], atol=1e-5)
    np.testing.assert_allclose(many.theta[:, 2], parts.theta[:, 0], atol=1e-5)
    np.testing.assert_array_equal(many.bits[2], parts.bits[0])
    np.testing.assert_array_equal(many.link_bits[2, 3::4], one.link_bits[0])
    assert not np.array_equal(many.link_bits[2], many.link_bits[3])


def test_a_link_fails_alike_on_every_graph_it_is_in() -> None:
    built, seeds, faults = (build("path", 12), build("complete", 12)), [0, 1], Faults(links=0.5, nodes=0.1)
    thin, thick = (weights_of(changing([one], faults, seeds), 12, 2, 30) for one in built)
    i, j = built[0].graph.edges.T
    np.testing.assert_array_equal(thin[..., i, j] > 0, thick[..., i, j] > 0)


def test_cases_of_one_pass_share_the_faults() -> None:
    X, y = blobs(40, 6)
    cases: dict[str, Any] = {
        "gossip": (Gossip(eta=1, gamma=0.5), "ring"),
        "turns": (Gossip(eta=1, gamma=0.5), Schedule(["ring", "star"])),
        "alone": (Local(eta=1), "ring"),
    }
    together = omkl.compare((X, y), cases, seeds=2, faults=Faults(links=0.3))
    for name, (method, topology) in cases.items():
        apart = omkl.simulate((X, y), topology, method=method, seeds=2, faults=Faults(links=0.3))
        np.testing.assert_allclose(together[name].loss, apart.loss, atol=2e-4)
        assert_same_but_for_flips(together[name].link_bits, apart.link_bits)
    assert not together["alone"].bits.any()


def test_matchings_that_take_turns_bring_nodes_together() -> None:
    X, y = blobs(100, 6)
    even, odd = (Graph(6, np.array(pairs)) for pairs in ([[0, 1], [2, 3], [4, 5]], [[1, 2], [3, 4], [5, 0]]))
    method = Gossip(eta=0.5, gamma=0.9, quantizer=None)
    result = omkl.simulate((X, y), Schedule([even, odd]), method=method)
    alone = omkl.simulate((X, y), "ring", method=Local(eta=0.5))
    assert result.disagreement[0, -1] < 0.5 * alone.disagreement[0, -1]
    assert (result.link_bits == result.bits).all()
    assert (result.bits == 6 * 8 * (4 + 3 * 40 * 4)).all()


def test_hubs_among_nodes_without_links_are_counted() -> None:
    # Fewer directed links than nodes, and the hub is the last of them.
    hubs = [Graph(400, np.array([[399, k] for k in range(first, first + 133)])) for first in (0, 133, 266)]
    network = changing(turns(Schedule(hubs)), Faults(), [0])
    assert isinstance(jax.eval_shape(network.at, jnp.uint32(0)).links, Edges)
    heard, links = count(network, 400, 4)
    assert (heard.tolist(), links.tolist()) == ([[134] * 4], [[266] * 4])


def test_a_large_star_needs_no_square() -> None:
    X, y = blobs(2, 20_000, d=3)
    method = Gossip(kernels=omkl.gaussian(1), features=2, quantizer=None)
    result = omkl.simulate((X, y), "star", method=method, faults=Faults(links=0.5))
    assert result.link_bits.mean() / (2 * 19_999 * 8 * (4 + 4 * 4)) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("faults", [Faults(0.5, 0.5), Faults(np.zeros((20, 0), bool), np.zeros((20, 1), bool))])
def test_one_node_has_nothing_to_lose(faults: Faults) -> None:
    X, y = blobs(20, 1)
    faulty = omkl.simulate((X, y), "path", method=Gossip(eta=0.5), faults=faults)
    np.testing.assert_allclose(faulty.theta, omkl.simulate((X, y), "path", method=Local(eta=0.5)).theta, atol=1e-6)
    assert not faulty.bits.any()


def test_faults_are_recorded_and_saved(tmp_path: Path) -> None:
    faults = given_faults(4, 4, 10)
    result = omkl.simulate(
        blobs(10, 4), "ring", method=omkl.paper(), faults=Faults(links=faults.links, nodes=0.25), seeds=2
    )
    record = result.config["faults"]
    assert (record["nodes"], record["links"]["shape"], len(record["links"]["sha256"])) == (0.25, [10, 4], 64)
    loaded = omkl.load(result.save(tmp_path))
    assert loaded.config == json.loads(json.dumps(result.config))
    for name in ("bits", "link_bits"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(result, name))
        assert getattr(loaded, name).dtype == np.int64
    config = omkl.simulate(blobs(10, 4), Schedule(["ring", nx.path_graph(4)]), method=omkl.paper()).config
    assert (config["faults"], config["topology"]["name"]) == (None, "schedule")
    assert config["topology"]["graphs"][0] == "ring"
    assert config["topology"]["graphs"][1]["edges"] == [[0, 1], [1, 2], [2, 3]]


def test_points_of_a_sweep_differ_by_what_fails() -> None:
    base = {"data": "banana", "nodes": 4}
    given = [None, Faults(links=0.1), Faults(nodes=0.1), given_faults(3, 4, 5), Faults()]
    points = sweeps.unique([base | {"faults": faults} for faults in given])
    points += sweeps.unique([base | {"topology": Schedule(graphs)} for graphs in (["ring", "star"], ["star", "ring"])])
    assert len({one.id for one in points}) == 7
    assert points[1].settings["faults"] == {"name": "faults", "links": 0.1, "nodes": 0.0}
    assert points[5].settings["topology"]["name"] == "schedule"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda: {"faults": Faults(links=1.1)}, r"links is 1\.1; a probability of failing lies in \[0, 1\]"),
        (lambda: {"faults": Faults(nodes=-0.1)}, r"nodes is -0\.1; a prob"),
        (lambda: {"faults": Faults(links=np.nan)}, "links is nan; a prob"),
        (lambda: {"faults": Faults(links=True)}, r"links is bool of bool and shape \(\); it must be a probability, or"),
        (lambda: {"faults": Faults(links=np.zeros((5, 4)))}, r"links is ndarray of float64 and shape \(5, 4\)"),
        (lambda: {"faults": Faults(links="often")}, "links is str"),
        (lambda: {"faults": Faults(links=[[True], [True, False]])}, "links is list"),
        (lambda: {"faults": Faults(links=np.zeros(4, bool))}, r"shape \(4,\); it must be"),
        (
            lambda: {"faults": Faults(links=np.zeros((5, 5), bool))},
            r"shape \(5, 5\); this run has 5 rounds and 4 links",
        ),
        (lambda: {"faults": Faults(nodes=np.zeros((4, 4), bool))}, "this run has 5 rounds and 4 nodes"),
        (lambda: {"faults": 0.1}, r"faults is 0\.1; it must say what fails; pass omkl\.Faults"),
        (
            lambda: {"faults": Faults(links=0.1), "method": "complete", "topology": "complete"},
            "complete with faults or",
        ),
        (lambda: {"topology": Schedule(["complete"] * 2), "method": "complete"}, "every node hears all others"),
        (lambda: {"topology": Schedule([])}, r"graphs is \[\]; a schedule has one graph or more"),
        (lambda: {"topology": Schedule("ring")}, "graphs is 'ring'; a sch"),  # type: ignore[arg-type]
        (lambda: {"topology": Schedule([ring(4), ring(5)])}, "nodes=4 for a topology of 5 nodes"),
        (lambda: {"topology": Schedule(["ring", "rign"])}, "did you mean 'ring'"),
        (lambda: {"topology": Schedule([nx.empty_graph(4), np.eye(4)])}, "the graph has 4 components"),
    ],
)
def test_bad_faults_are_refused_before_work(change: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "run", lambda *args: pytest.fail("computation was started"))
    with pytest.raises(InputError, match=text):
        omkl.simulate(**{"data": blobs(5, 4), "topology": "ring"} | change())


def test_graphs_of_a_schedule_have_the_same_nodes() -> None:
    with pytest.raises(InputError, match="graph 1 of the schedule has 5 nodes, graph 0 has 4"):
        turns(Schedule([ring(4), ring(5)]))
