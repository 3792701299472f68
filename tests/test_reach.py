"""How many nodes a sample has reached, and what a node makes of the links it hears."""

import itertools

import numpy as np
import pytest

import omkl
from omkl import topology
from omkl.data import as_stream
from omkl.errors import InputError
from omkl.learners import pooled
from omkl.methods import Gossip
from omkl.reach import AHEAD, ENOUGH, FALLS, RISES, Hearing, Reach, knots


def heard(rounds: float, share: float) -> Hearing:
    none = Reach().start(np.zeros((1, 1, 1, 2), np.float32))
    return none._replace(rounds=np.full(1, rounds, np.float32), share=np.full(1, share, np.float32))


def grown(graph: topology.Topology, pull: float, rounds: float, most: float = 1e6) -> float:
    reach = Reach(most).on([graph], pull)
    return float(reach.alpha(heard(rounds, 1))[0])


def returns(shrinks: np.ndarray, rounds: float) -> float:
    """Return the mean share of its own steps that a node has left, of those half to all of the rounds old.

    Rounds that are to come before a step is built upon are counted in.
    """
    ages = np.maximum(1, (rounds + AHEAD) * np.linspace(0.5, 1, 9))
    return float(np.mean(np.abs(shrinks) ** ages[:, None]))


def test_two_nodes_by_hand() -> None:
    pair = topology.build("path", 2)  # eigenvalues 1 and 0: a walk returns with probability (1 + (1 - pull)^k) / 2
    assert AHEAD == 15
    assert grown(pair, 0.02, 1) == pytest.approx(2 / (1 + np.mean(0.98 ** np.linspace(8, 16, 9))), rel=5e-3)
    for rounds in (1, 17, 49, 113):  # with those ahead powers of two, where it is not interpolated
        assert grown(pair, 0.02, rounds) == pytest.approx(1 / returns(np.array([1, 0.98]), rounds), rel=5e-3)
    assert grown(pair, 0.5, 10**6) == pytest.approx(2, rel=1e-2)


def test_a_complete_graph_is_one_place_at_once() -> None:
    assert grown(topology.build("complete", 30), 1.0, 1) == pytest.approx(30)


def test_before_the_first_round_and_alone() -> None:
    ring = topology.build("ring", 20)
    assert grown(ring, 1, 0) == 1
    assert grown(topology.build("path", 1), 1, 100) == 1
    reach = Reach(12).on([ring], 1)
    assert float(reach.alpha(heard(500, 0))[0]) == 1


def test_it_grows_up_to_the_most_and_no_further() -> None:
    for name in ("path", "ring", "star", "complete", "grid"):
        found = knots([topology.build(name, 36)], 1, 12)
        assert all(1 <= one <= other <= 12 for one, other in itertools.pairwise(found))
    assert grown(topology.build("ring", 100), 1, 10**6, most=12) == 12
    star = topology.build("star", 100)
    assert grown(star, 1, 32) < 2  # a hub under these weights hardly listens, and what it hears travels nowhere


@pytest.mark.parametrize("name", ["ring", "path"])
def test_large_graphs_by_random_walks(name: str) -> None:
    nodes = 1500
    mu = 1 - (2 / 3) * (1 - np.cos(2 * np.pi * np.arange(nodes) / nodes))  # of a ring; a path is one but for its ends
    for rounds in (17, 113):  # between even numbers of rounds it is interpolated, which matters for the first few
        exact = 1 / returns(mu, rounds)
        assert grown(topology.build(name, nodes), 1, rounds) == pytest.approx(exact, rel=0.05)


def test_graphs_that_take_turns_count_by_their_mean() -> None:
    matchings = [np.zeros((4, 4)), np.zeros((4, 4))]
    for matrix, pairs in zip(matchings, ([(0, 1), (2, 3)], [(1, 2), (3, 0)]), strict=True):
        for i, j in pairs:
            matrix[i, j] = matrix[j, i] = 1
    turns = topology.turns(omkl.topology.Schedule([np.array(m) for m in matchings]), 4)
    mean = np.mean([turn.matrix() for turn in turns], axis=0)
    shrinks = np.abs(np.linalg.eigvalsh(mean))
    reach = Reach(100).on(turns, 1)
    assert reach.alpha(heard(1, 1))[0] == pytest.approx(1 / returns(shrinks, 1), rel=1e-2)


def test_links_that_are_lost_count_at_once_and_those_that_are_back_after_a_while() -> None:
    reach = Reach(12).on([topology.build("ring", 50)], 1)
    now = reach.start(np.zeros((3, 1, 1, 2), np.float32))
    alphas = [reach.alpha(now)]
    for share in [1.0] * 200 + [0.0] * 4 + [1.0] * 40:
        now = reach.hear(now, share)
        alphas.append(reach.alpha(now))
    steps = np.array(alphas)[:, 0]
    assert steps[0] == 1
    assert steps[200] == 12
    assert steps[201] == pytest.approx(1 + 11 * FALLS / ENOUGH, rel=1e-3)
    assert steps[204] == pytest.approx(1 + 11 * FALLS**4 / ENOUGH, rel=1e-3)
    share = 1 - (1 - FALLS**4) * (1 - RISES) ** 2
    assert steps[206] == pytest.approx(1 + 11 * share / ENOUGH, rel=1e-3)
    assert steps[-1] > 10
    np.testing.assert_array_equal(np.array(alphas)[:, 1], steps)


def test_shares_below_one_slow_it_down() -> None:
    reach = Reach(12).on([topology.build("ring", 50)], 1)
    whole = half = reach.start(np.zeros((1, 1, 2), np.float32))
    for _ in range(50):
        whole, half = reach.hear(whole, 1.0), reach.hear(half, 0.5)
    assert half.rounds == 25
    assert float(half.share) == pytest.approx(0.5)
    assert reach.alpha(half) < 0.8 * reach.alpha(whole)
    assert reach.alpha(heard(500, ENOUGH)) == reach.alpha(heard(500, 1)) > reach.alpha(heard(500, 0.9 * ENOUGH))


def test_a_pull_beyond_the_weights_counts_as_all_of_them() -> None:
    star = topology.build("complete", 3, "best_constant")
    assert Reach().on([star], 5.0) == Reach().on([star], 1.0)


def test_refusals() -> None:
    with pytest.raises(InputError, match="most is 0"):
        Reach(0)
    with pytest.raises(InputError, match="reach has no knots"):
        Reach().alpha(heard(1, 1))
    with pytest.raises(InputError, match="reach is 3"):
        Gossip(reach=3)
    with pytest.raises(InputError, match="reach with fresh"):
        omkl.Choco(fresh=True, reach=Reach())


def test_one_network_is_one_learner_where_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """With exact messages on a complete graph and alpha = J, a round is a step of one learner given J samples.

    As long as those are not taken to be alike, which the learner in one place below does not look for.
    """
    monkeypatch.setattr(pooled, "RECENT", 0.0)
    monkeypatch.setattr(Reach, "alike", lambda self, heard: 0 * heard.due)
    nodes, rounds = 5, 40
    method = omkl.recommended(quantizer=None, gamma=1.0, momentum=0.0, pace=omkl.Pace(2), basis=omkl.Landmarks(rank=30),
        reach=Reach(nodes, (float(nodes),)), learner=omkl.Pooled(priors=(300.0,)),
    )  # fmt: skip
    stream, _ = as_stream("banana", nodes, 0)
    X, y = stream.X[:rounds], stream.y[:rounds]
    W = np.full((nodes, nodes), 1 / nodes)
    found = omkl.simulate((X, y), W, method=method).loss[0]
    made = method.bank.draw(2, 0, X)
    z = np.asarray(omkl.features.transform(X, made), dtype=np.float64)[:, :, 0]
    assert made.spectrum is not None
    m, theta, losses = made.spectrum[0].astype(np.float64), np.zeros(30), []
    own, log_curvature = 0, np.log(0.25)
    count = 0.0
    for t in range(rounds):
        f = z[t] @ theta
        losses.append(np.logaddexp(0, -y[t] * f).mean())
        slope = -y[t] / (1 + np.exp(y[t] * f))
        curved = np.maximum(1 / (2 + np.exp(f) + np.exp(-f)), 0.01)
        own, count = own + 1, count + nodes
        each = np.exp(log_curvature) + (curved - np.exp(log_curvature)) / (16 + own)
        curved_for = count / (1 + (nodes - 1) * 3 / (3 + own))  # of the first samples, mostly the node's own
        steps = np.zeros(30)
        for j in range(nodes):
            S = 300 * m / (1 + each[j] * curved_for * 300 * m)
            q = (S * z[t, j] ** 2).sum()
            low, high = 1 / (1 + 0.25 * q), 1.0
            for _ in range(60):
                r = (low + high) / 2
                there = -y[t, j] / (1 + np.exp(y[t, j] * (f[j] - r * q * slope[j])))
                low, high = (low, r) if r * slope[j] ** 2 >= slope[j] * there else (r, high)
            steps += low * S * z[t, j] * slope[j]
        theta = theta - steps
        log_curvature = np.log(each).mean()
    np.testing.assert_allclose(found, losses, atol=3e-3)
    assert found[-10:].mean() < 0.75 * found[:10].mean()


def says(own: np.ndarray, other: np.ndarray, rounds: int = 5) -> float:
    """Return how alike two nodes are found that say this again and again, each pulling the other by half."""
    reach, hidden = Reach(), np.zeros((2, 1, 1, 2), np.float32)
    heard, said = reach.start(hidden), np.stack([own, other])[:, None, None].astype(np.float32)
    for _ in range(rounds):
        pull = 0.5 * (hidden[::-1] - hidden)
        heard = reach.listen(heard, pull, said, np.full(2, 0.5, np.float32))
        hidden = hidden + said
    return float(reach.alike(heard)[0, 0])


def test_who_says_the_same_is_known_by_not_pulling_back() -> None:
    one, other = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert says(one, one) == pytest.approx(1)
    assert says(one, other) == pytest.approx(0, abs=1e-6)
    assert says(one, one + other) == pytest.approx(1)  # all of what it says is said by the other too
    assert says(one, 0.5 * one) == pytest.approx(0.5)
    assert says(one, -one) == 0
    assert says(one, one, rounds=0) == pytest.approx(0.4)  # nothing was said
