"""Sending less: the pace of gossip, and kernels that a message leaves out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import Budget, Gossip, InputError, Pace, Sampled, Triggered, algorithm, features, topology, wire
from omkl.config import experiment
from omkl.methods import Neighbors
from omkl.node.events import Gossiped, Scored
from omkl.node.halves import Arrays
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.quantizers import QSGD, Nearest
from omkl.sending import LAST, Fading, Phase
from tests import numpy_run
from tests.conftest import Library
from tests.node_cluster import config, run, stream
from tests.test_node_protocol import one_by_one

PACES = [Pace(4, until=3, least=1), Pace(2), Pace(1 / 3), Pace(1, until=2), Pace(0.5, until=5)]
WAYS: list[Pace | Budget] = [*PACES, Budget(60, 4, 0.5)]
RULES = [Sampled(1), Sampled(2, floor=0.5), Triggered(1.5)]


def bad(**settings: Any) -> dict[str, Any]:
    return settings


def test_a_pace_by_hand() -> None:
    assert [Pace(2).rounds(count) for count in range(4)] == [0, 2, 4, 6]
    assert [Pace(1 / 3).rounds(count) for count in range(8)] == [0, 1, 1, 1, 2, 2, 2, 3]
    assert [Pace(1 / 3).samples(at) for at in range(1, 4)] == [3, 3, 3]
    assert [Pace(2).samples(at) for at in range(1, 5)] == [0, 1, 0, 1]
    fading = Pace(2, until=2)  # two samples with 2 rounds each, six with one, 24 with one for two
    assert [fading.samples(at) for at in range(1, 13)] == [0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2]
    assert fading.rounds(32) == 4 + 6 + 12
    assert fading.rounds(128) == 22 + 24
    assert fading.rounds(528) == 22 + 24 + 100  # no less than a quarter
    assert Pace(2, until=2, least=1).rounds(1000) == 1002


@given(st.sampled_from([1 / 8, 0.25, 0.5, 1, 2, 4, 16]), st.one_of(st.none(), st.integers(1, 40)), st.integers(1, 3000))
def test_what_a_node_learns_after_a_round_is_what_the_simulator_does(rate: float, until: int | None, at: int) -> None:
    pace = Pace(rate, until)
    allowed = sum(pace.samples(one) for one in range(1, at + 1))
    assert pace.rounds(allowed) <= at < pace.rounds(allowed + 1)


def test_a_fading_schedule_by_hand() -> None:
    # With sample t from zero, 3 / sqrt(t) rounds, rounded up: 3, 2.1, 1.7, 1.5, 1.3, 1.2, 1.1, 1.06, 1, ...
    each = np.diff([int(Fading(3).rounds(samples)) for samples in range(15)])
    assert each.tolist() == [1, 3, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1]
    # Below one: a half from 3 / sqrt(t) = 1/2 on, t = 36, and no less.
    seldom = Fading(3, least=0.5)
    assert seldom.phases[-2:] == (Phase(9, 27, 1, 1), Phase(36, LAST - 36, 1, 2))
    assert int(seldom.rounds(46)) == int(seldom.rounds(36)) + 5


@pytest.mark.parametrize("numbers", [10, 71, 123, 1000])
@pytest.mark.parametrize("budget", [Budget(), Budget(16, least=0.5), Budget(100, samples=20)])
def test_a_budget_is_spent_and_not_exceeded(budget: Budget, numbers: int) -> None:
    message = 4 + 2 + 0.97 * numbers / 8
    spent = [4 + message * (int(one.rounds(budget.samples)) - 1) for one in tried(budget, numbers)]
    least = 4 + message * (int(Fading(0.25, budget.least).rounds(budget.samples)) - 1)
    allowed = budget.bytes * budget.samples
    assert spent[0] <= max(allowed, least)
    assert spent[1] > allowed or tried(budget, numbers)[0].rate == 64
    later = [message * int(tried(budget, numbers)[0].rounds(n)) / n for n in (budget.samples, 200, 2000)]
    assert later == sorted(later, reverse=True)


def test_equal_budgets_are_equal_to_nodes_too() -> None:
    texts = {config(2, pace=pace).role("a").contract() for pace in (Budget(), Budget(48.0, 50, 1.0), Budget(least=1))}
    assert len(texts) == 1
    assert "pace bytes=48.0 samples=50 least=1.0\n" in texts.pop()


def tried(budget: Budget, numbers: int) -> tuple[Fading, Fading]:
    """Return the schedule of a budget, and the next that has more rounds."""
    made = budget.schedule(1, numbers)
    return made, Fading(made.rate + 0.25, made.least)


@given(st.integers(1, 256), st.sampled_from([1, 0.5, 0.25]), st.integers(0, 3000))
def test_what_a_node_learns_in_a_fading_schedule_is_what_the_simulator_does(
    quarters: int, least: float, at: int
) -> None:
    schedule = Fading(quarters / 4, least)
    assert int(schedule.rounds(schedule.learned(at) + 1)) > at >= int(schedule.rounds(schedule.learned(at)))
    assert sum(schedule.samples(round_) for round_ in range(1, at % 50 + 1)) == schedule.learned(at % 50)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Pace(0), "rate is 0"),
        (lambda: Pace(1.5), "rate is 1.5; it must be 1 to 64 rounds of gossip a sample, or one round for as many"),
        (lambda: Pace(float("nan")), "rate is nan"),
        (lambda: Pace(100), "rate is 100.0"),
        (lambda: Pace(1, least=0), "least is 0.0; it must be 1 to 64 rounds"),
        (lambda: Pace(3, until=4), "rate is 3.0; it is halved again and again; use a power of two"),
        (lambda: Pace(2, until=0), "until is 0"),
        (lambda: Budget(0), "bytes is 0.0; it must be positive"),
        (lambda: Budget(least=2), "least is 2.0; it must be 1 or one round for so many samples"),
        (lambda: Budget(**bad(least="48")), "least is '48'"),
        (lambda: Budget(samples=0), "samples is 0"),
        (lambda: Sampled(0), "kernels is 0.0; it must be positive"),
        (lambda: Sampled(1, floor=0), r"floor is 0.0; it must lie in \(0, 1\]"),
        (lambda: Triggered(-1), "threshold is -1.0"),
        (lambda: Gossip(**bad(pace=3)), "pace is 3; it says how much gossip goes with a sample; pass omkl.Budget"),
        (lambda: Gossip(sending="sample"), "unknown sending 'sample'; did you mean 'sampled'"),
        (lambda: Gossip(**bad(sending=Sampled)), "sending is the class Sampled; give a name or an object"),
    ],
)
def test_bad_settings_are_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_kernels_are_sent_in_their_share(library: Library) -> None:
    weights = np.array([[0.8, 0.15, 0.05], [1 / 3, 1 / 3, 1 / 3]], dtype=np.float32)
    nothing, rule = np.zeros((2, 3, 1, 4), np.float32), Sampled(1, floor=0.1)
    share = library.call(rule.share, weights)
    np.testing.assert_allclose(share[0], [0.753333, 0.168333, 0.078333], rtol=1e-5)
    rounds = np.arange(1000, dtype=np.uint32)
    sent = library.call(rule.sends, nothing, weights, weights, rounds[:, None, None])
    np.testing.assert_allclose(sent.mean(axis=0), share, atol=0.004)
    assert set(sent.sum(axis=-1).ravel().tolist()) == {1}
    np.testing.assert_array_equal(sent[7], rule.sends(nothing, weights, weights, 7))  # a node counts in Python
    everything = library.call(Sampled(3).sends, nothing, weights, weights, rounds[:1])
    assert everything[1].all()
    assert everything[0, 0]  # a share of more than one is one


def test_a_kernel_that_moved_is_sent() -> None:
    difference = np.zeros((3, 1, 2), dtype=np.float32)
    difference[:, 0, 0] = [1, 2, 0]
    moved = np.array([1.0, 1.0, 0.0], dtype=np.float32)
    weights = np.full(3, 1 / 3, dtype=np.float32)
    assert Triggered(1.5).sends(difference, weights, moved, 0).tolist() == [False, True, False]
    assert Triggered(0.5).sends(difference, weights, moved, 0).tolist() == [True, True, False]


def test_what_is_not_sent_is_silent() -> None:
    rng = np.random.default_rng(0)
    theta, hidden = rng.normal(size=(2, 3, 1, 40)).astype(np.float32)
    whole, parted = (
        algorithm.emit(theta, hidden, Nearest(), None, sent) for sent in (None, np.array([True, False, True]))
    )
    assert parted.step[1] == 0
    np.testing.assert_array_equal(parted.levels[[0, 2]], whole.levels[[0, 2]])
    np.testing.assert_array_equal(algorithm.absorb(hidden, parted)[1], hidden[1])
    codec = wire.Codec((3, 1, 40), Nearest())
    body = wire.write_gossip(codec, 1, 1, parted, 0)
    assert len(body) < 0.8 * len(wire.write_gossip(codec, 1, 1, whole, 0))
    read = wire.read_gossip(codec, body, (1, 1), 0)
    for one, other in zip(read, parted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("pace", WAYS, ids=str)
def test_a_cluster_keeps_the_pace_of_the_simulator(pace: Pace | Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omkl.node.learning.halves", lambda *given: Arrays(*given[:4]))
    network, (x, y) = config(5, "path", quantizer=QSGD(4), pace=pace), stream(5, 30)
    cluster = run(network, x, y)
    monkeypatch.setattr(features, "transform", one_by_one)
    whole, schedule = numpy_run.run(network.method, x, y, network.topology, network.seed), network.method.schedule
    assert schedule is not None
    for j, node in enumerate(cluster.nodes.values()):
        np.testing.assert_array_equal(node.learning.state.theta, whole.state.theta[j])
        np.testing.assert_array_equal(node.learning.state.hidden, whole.state.hidden[j])
        losses = [event.loss for id, event in cluster.of(Scored) if id == node.role.id]
        np.testing.assert_array_equal(losses, whole.loss[:, j])
        assert node.round == schedule.rounds(30)
    assert len(cluster.of(Gossiped)) == 5 * int(schedule.rounds(30))
    cluster.check_copies()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_cluster_leaves_out_what_the_simulator_does(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {
        "sending": rule,
        "momentum": 0.5,
        "common_weights": True,
        "quantizer": Nearest(2),
        "eta": 0.5,
    }
    network, (x, y) = config(5, "ring", pace=Pace(2, until=4), **settings), stream(5, 30)
    cluster = run(network, x, y)
    monkeypatch.setattr(features, "transform", one_by_one)
    whole = numpy_run.run(network.method, x, y, network.topology, network.seed)
    for j, node in enumerate(cluster.nodes.values()):
        np.testing.assert_array_equal(node.learning.state.hidden, whole.state.hidden[j])
        np.testing.assert_array_equal(node.learning.state.moved, whole.state.moved[j])
    cluster.check_copies()


@pytest.mark.parametrize("pace", [None, *WAYS], ids=str)
@pytest.mark.parametrize("rule", [None, RULES[0], RULES[2]], ids=str)
def test_the_simulator_equals_numpy(pace: Pace | Budget | None, rule: Any) -> None:
    method = Gossip(eta=0.5, gamma=0.3, momentum=0.4, quantizer=None, features=5, pace=pace, sending=rule)
    x, y = stream(6, 25)
    result = omkl.simulate((x, y), "ring", method=method, seed=3)
    expected = list(numpy_run.play(method, x, y, topology.build("ring", 6), 3))
    np.testing.assert_allclose(result.theta[:, 0], expected[-1][0].theta, atol=2e-5)
    np.testing.assert_allclose(result.loss[0], [info.loss.mean() for _, info, _ in expected], atol=2e-5)
    sizes = [np.sum(np.broadcast_to(info.message_bytes, 6)) for _, info, _ in expected]
    np.testing.assert_array_equal(result.bits[0], 8 * np.array(sizes))


def test_seldom_recorded_bits_are_those_of_all_rounds() -> None:
    method = Gossip(eta=0.5, quantizer=None, features=5, pace=Pace(2, until=3))
    x, y = stream(4, 60)
    often, seldom = (omkl.simulate((x, y), "path", method=method, record_every=every) for every in (1, 12))
    assert seldom.bits.shape == (1, 5)
    np.testing.assert_allclose(seldom.bits[0], often.bits[0].reshape(5, 12).mean(axis=1), rtol=1e-6)
    assert len(set(often.bits[0].tolist())) == 3  # two rounds, one and none


@pytest.mark.parametrize("rule", [Sampled(1), Sampled(0.3), Triggered(2)], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_mixing_at_auto_fades_whatever_is_left_out(rule: Any, momentum: float) -> None:
    method = Gossip(gamma="auto", quantizer=Nearest(2.5), features=20, momentum=momentum, sending=rule)
    network = topology.build("path", 8)
    method = method.on(network)
    ids, weights = network.neighbors()
    links = Neighbors(ids, weights.astype(np.float32))
    rng = np.random.default_rng(1)
    state = method.init(np, (8,), 1)
    start = rng.normal(size=state.theta.shape).astype(np.float32)
    # Weights that differ from node to node make the kernels that are sent differ.
    state = state._replace(theta=start, log_weights=rng.normal(size=(8, 3)).astype(np.float32))
    for at in range(600):
        state, _ = method.gossip(state, None, links, at)
    apart = np.linalg.norm(state.theta - state.theta.mean(axis=0)) / np.linalg.norm(start - start.mean(axis=0))
    assert apart < 0.8
    assert np.abs(state.theta).max() < 2 * np.abs(start).max()


def test_a_restart_keeps_the_pace(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"pace": Pace(0.25), "sending": Triggered(1.5), "quantizer": None}
    role = config(1, "path", **settings).role("a")
    x, y = stream(1, 20)
    first = Protocol(role, 1, 0.0)
    for t in range(6):
        first.observe(x[t, 0], y[t, 0], 0.0)
    assert (first.round, first.left) == (2, 2)
    checkpoint.save(tmp_path / "a", first, clean=True)
    second = checkpoint.restore(tmp_path / "a", role, 2, 0.0)
    assert second.left == 2
    for node in (first, second):
        for t in range(6, 20):
            node.observe(x[t, 0], y[t, 0], 0.0)
        assert node.round == 5
    for one, other in zip(first.learning.state[:3], second.learning.state[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first.learning.state.moved, second.learning.state.moved)


def test_a_pace_is_part_of_the_contract_and_not_of_a_clock() -> None:
    assert "pace rate=0.5 until=8 least=0.25\n" in config(2, pace=Pace(0.5, until=8)).role("a").contract()
    assert "pace" not in config(2).role("a").contract()
    with pytest.raises(InputError, match=r"learning.method.pace: .* timing.mode is timer; .* pace = false"):
        replace(config(2, pace=Pace(0.5)), timing=Timing(mode="timer"))


def test_settings_by_name() -> None:
    table = {"name": "gossip", "pace": {"rate": 4, "until": 8}, "sending": {"name": "sampled", "kernels": 2}}
    method = experiment({"data": "banana", "nodes": 4, "method": table}).method
    assert isinstance(method, Gossip)
    assert (method.channel.pace, method.channel.sending) == (Pace(4, 8), Sampled(2))
