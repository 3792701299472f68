"""Rounds: what a network of protocol objects computes, in both modes, whatever its streams."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omkl import features, wire
from omkl.errors import InputError
from omkl.features import gaussian, matern
from omkl.losses import Huber, Softmax
from omkl.node.events import Diverged, Event, Gossiped, Scored
from omkl.node.halves import Arrays
from omkl.node.leaps import MOST_SKIPPED
from omkl.node.links import LAST_ROUND, LinkState
from omkl.node.persistence import checkpoint
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions
from omkl.quantizers import QSGD, Exact, Nearest
from omkl.wire import Kind, peek
from tests import numpy_run
from tests.node_cluster import LOCKSTEP, TIMER, Cluster, assert_same, config, run, stream

DELAY = Conditions(delay=0.01)


def alone(**settings: Any) -> Protocol:
    return Protocol(config(1, **settings).role("a"), 1, 0.0)


def test_two_nodes_by_hand() -> None:
    # One kernel, D = 1, x = 0: z = (sin 0, cos 0) = (0, 1), so all is in the second coefficient. Squared loss, y = 1
    # and 1/2, w = gamma = 1/2, eta = lambda = 1/4; every number is a sum of powers of two, so all digits must agree.
    network = config(
        2, kernels=gaussian(1), features=1, eta=0.25, gamma=0.5, regularization=0.25, loss="squared", quantizer=None
    )
    one, other = (Protocol(network.role(id), boot, 0.0) for id, boot in (("a", 0xA0), ("b", 0xB0)))
    ends = {"a": one, "b": other}

    def exchange() -> list[bytes]:
        """Carry frames until nobody has more to say; return the gossip of a."""
        said = []
        while sends := [(id, send.data) for id, node in ends.items() for send in node.outgoing()]:
            for id, data in sends:
                said += [data] if id == "a" and peek(data).kind is Kind.FIXED else []
                ends["b" if id == "a" else "a"].receive(id, data, 0.0)
        return said

    one.came("b", 0.0)
    other.came("a", 0.0)
    exchange()
    frames = []
    for losses, hidden, theta in (
        # nothing to mix or send; slopes 2 (0 - y) = -2 and -1
        ((1.0, 0.25), (0.0, 0.0), (0.5, 0.25)),
        # h was 0: q = theta; slopes 2 (f - y) + theta/2 = -3/4 and -3/8
        ((0.25, 0.0625), (0.5, 0.25), (0.6875, 0.34375)),
        # pulled by (1/2)(1/2)(h_i - h_j) = -1/16 and 1/16: theta = 5/8 and 13/32; slopes -3/4 + 5/16 and -3/16 + 13/64
        ((0.140625, 0.0087890625), (0.625, 0.40625), (0.734375, 0.40234375)),
    ):
        scored = [
            event
            for node, y in ((one, 1.0), (other, 0.5))
            for event in node.observe([0.0, 0.0], y, 0.0)
            if isinstance(event, Scored)
        ]
        frames += exchange()
        assert tuple(event.loss for event in scored) == losses
        assert tuple(node.learning.state.hidden[0, 0, 1] for node in ends.values()) == hidden
        assert tuple(node.learning.state.theta[0, 0, 1] for node in ends.values()) == theta
        assert one.links["b"].copy[0, 0].tolist() == [0, hidden[1]]
        assert other.links["a"].copy[0, 0].tolist() == [0, hidden[0]]
    head = [f"250{t}" for t in (1, 2, 3)]
    floats = ["00000000", "0000003f", "0000003e"]  # 0, 1/2 and 5/8 - 1/2
    assert [frame[:-2].hex() for frame in frames] == [a + "00000000" + b for a, b in zip(head, floats, strict=True)]


def one_by_one(x: Any, made: Any) -> Any:
    """Return the features of samples as a node computes them: other products may sum in another order."""
    rows = [features.waves(np.dot(made.frequencies, row)) for row in x.reshape(-1, x.shape[-1])]
    return np.stack(rows).reshape(*x.shape[:-1], *rows[0].shape)


@pytest.mark.parametrize("graph", ["path", "star", "ring", "complete"])
@pytest.mark.parametrize(
    "method",
    [
        {"quantizer": Exact()},
        {"quantizer": QSGD(bits=4)},
        {"quantizer": Nearest(step=2.5)},
        {"quantizer": "sign", "kernels": matern(1, 3), "orthogonal": True},
        {"quantizer": Nearest(step=1, block=4), "loss": Softmax(classes=3), "kernels": gaussian(1, 3)},
        {"quantizer": Nearest(step=2), "loss": Huber(outputs=2), "kernels": gaussian(1, 3)},
    ],
    ids=lambda method: str(method["quantizer"]),
)
def test_a_cluster_computes_what_the_whole_network_does(
    graph: str, method: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, (x, y) = config(5, graph, **method), stream(5, 30)
    y = {Softmax: y + 1, Huber: x**2}.get(type(method.get("loss")), y)
    monkeypatch.setattr("omkl.node.learning.halves", lambda *given: Arrays(*given[:4]))
    cluster = run(network, x, y, DELAY)
    monkeypatch.setattr(features, "transform", one_by_one)
    whole = numpy_run.run(network.method, x, y, network.topology, network.seed)
    for j, node in enumerate(cluster.nodes.values()):
        np.testing.assert_array_equal(node.learning.state.theta, whole.state.theta[j])
        np.testing.assert_array_equal(node.learning.state.hidden, whole.state.hidden[j])
        np.testing.assert_array_equal(node.learning.state.log_weights, whole.state.log_weights[j])
        losses = [event.loss for id, event in cluster.of(Scored) if id == node.role.id]
        np.testing.assert_array_equal(losses, whole.loss[:, j])
    cluster.check_copies()


@settings(max_examples=60)
@given(
    graph=st.sampled_from(["path", "star", "ring"]),
    seed=st.integers(0, 2**16),
    conditions=st.builds(
        Conditions,
        delay=st.just(0.01),
        jitter=st.sampled_from([0.0, 0.02, 0.2]),
        loss=st.sampled_from([0.0, 0.02, 0.1]),
        duplication=st.sampled_from([0.0, 0.3]),
        ordered=st.booleans(),
    ),
    quantizer=st.sampled_from([None, "nearest"]),
)
def test_in_lock_step_delay_loss_repetition_and_order_do_not_matter(
    graph: str, seed: int, conditions: Conditions, quantizer: str | None
) -> None:
    network, (x, y) = config(4, graph, quantizer=quantizer), stream(4, 10)
    cluster = run(network, x, y, conditions, seed)
    assume(not cluster.left_out())
    assert_same(cluster.results(), run(network, x, y).results())
    cluster.check_copies()


def test_lost_messages_seldom_cost_a_neighbor() -> None:
    conditions = Conditions(delay=0.01, loss=0.1)
    runs = [run(config(4, "ring"), *stream(4, 10), conditions, seed) for seed in range(20)]
    assert sum(bool(cluster.left_out()) for cluster in runs) <= 2


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
@pytest.mark.parametrize(
    "lengths", [(20, 40, 20), (40, 20, 20), (20, 0, 20), (0, 0, 20), (20, 5, 20), (1, 20, 3)], ids=str
)
def test_uneven_streams(timing: Timing, lengths: tuple[int, ...]) -> None:
    cluster, (x, y) = Cluster(config(3, timing=timing), DELAY), stream(3, max(lengths))
    for j, (id, length) in enumerate(zip("abc", lengths, strict=True)):
        cluster.network.feed(id, zip(x[:length, j], y[:length, j], strict=True))
    cluster.network.run(60.0)
    assert {id: sum(whose == id for whose, _ in cluster.of(Scored)) for id in "abc"} == dict(
        zip("abc", lengths, strict=True)
    )
    assert not cluster.left_out()
    assert cluster.states() == {LinkState.SYNCED}
    if timing is LOCKSTEP:
        assert {node.round for node in cluster.nodes.values()} == {max(lengths)}
        cluster.check_copies()


def test_a_node_without_samples_takes_its_patience_once_and_at_the_end_of_its_stream_none() -> None:
    taken = []
    for ended in (False, True):
        cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 8)
        if ended:
            cluster.network.feed("b", [])
        cluster.network.feed("a", zip(x[:, 0], y[:, 0], strict=True))
        cluster.network.run()
        taken.append([now for now, id, event in cluster.events if id == "b" and isinstance(event, Gossiped)])
        assert len(taken[-1]) == 8
    assert taken[0][0] >= LOCKSTEP.patience > 0.05 > taken[1][0]
    assert all((np.diff(times) < 0.05).all() for times in taken)


@pytest.mark.parametrize(("pace", "rounds"), [(0.4, 12), (0.6, 40), (100.0, 40)])
def test_a_slow_sensor_holds_up_only_those_that_are_not_much_faster(pace: float, rounds: int) -> None:
    # a has ten samples a second for four seconds; b has them at a pace around its patience, or none after the first.
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 60)
    network = cluster.network
    network.run(1.0)
    network.observe("b", x[0, 1], y[0, 1])
    due, start = network.now + pace, network.now
    for t in range(40):
        network.observe("a", x[t, 0], y[t, 0])
        network.run(start + (t + 1) * 0.1)
        if network.now >= due:
            network.observe("b", x[t, 1], y[t, 1])
            due += pace
    taken = cluster.nodes["a"].round
    assert taken <= rounds
    assert taken >= 0.8 * rounds


def test_samples_without_labels_are_predicted_and_not_learned() -> None:
    node = alone()
    for _ in range(5):
        node.observe([1.0, -1.0], 1, 0.0)
    theta, before = node.learning.state.theta, node.predict([1.0, -1.0])
    (event,) = [event for event in node.observe([1.0, -1.0], None, 0.0) if isinstance(event, Scored)]
    assert event.loss is None
    np.testing.assert_array_equal(event.output, before)
    np.testing.assert_array_equal(node.learning.state.theta, theta)
    assert node.round == 6  # it took part all the same


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
def test_labels_here_and_there_in_a_network(timing: Timing) -> None:
    cluster, (x, y) = Cluster(config(3, timing=timing), DELAY), stream(3, 30)
    for j, id in enumerate("abc"):
        cluster.network.feed(id, [(x[t, j], y[t, j] if (t + j) % 3 else None) for t in range(30)])
    cluster.network.run(60.0)
    assert sum(event.loss is None for _, event in cluster.of(Scored)) == 30
    assert sum(event.loss is not None for _, event in cluster.of(Scored)) == 60
    assert not cluster.left_out()


def fed_by_the_clock(cluster: Cluster, x: np.ndarray, y: np.ndarray, period: float) -> None:
    for t in range(len(x)):
        for j, id in enumerate(cluster.config.ids):
            cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + period)


def spread(cluster: Cluster) -> float:
    theta = np.stack([node.learning.state.theta for node in cluster.nodes.values()])
    return float(np.abs(theta - theta.mean(axis=0)).mean() / np.abs(theta).mean())


def test_by_timer_a_network_learns_and_agrees() -> None:
    timing = Timing(mode="timer", deadline=4.0, period=0.5)
    cluster, (x, y) = Cluster(config(5, "ring", timing=timing, features=20), DELAY), stream(5, 300)
    fed_by_the_clock(cluster, x, y, 0.25)
    losses = np.array([event.loss for _, event in cluster.of(Scored)])
    assert losses[:250].mean() > 0.55
    assert losses[-250:].mean() < 0.45
    apart = spread(cluster)
    cluster.network.run(cluster.network.now + 40)
    assert spread(cluster) < 0.05 < apart
    assert not cluster.left_out()
    rounds = [node.round for node in cluster.nodes.values()]
    assert max(rounds) - min(rounds) <= 1
    assert rounds[0] == pytest.approx(cluster.network.now / 0.5, abs=2)


def test_by_timer_a_round_missed_is_not_made_up_for() -> None:
    node = alone(timing=TIMER)
    node.wake(7.5)  # seven periods at once, as after a pause of the machine
    assert (node.round, node.wake_at()) == (1, 8.0)


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
def test_a_node_alone(timing: Timing) -> None:
    x, y = stream(1, 50)
    cluster = Cluster(config(1, timing=timing))
    cluster.feed(x, y)
    cluster.network.run(10.0)
    (node,) = cluster.nodes.values()
    assert len(cluster.of(Scored)) == 50
    assert node.round == (50 if timing is LOCKSTEP else 10)


def test_a_network_at_rest_is_left_alone() -> None:
    for graph in ("path", "ring", "star"):
        cluster = run(config(4, graph), *stream(4, 6), DELAY)
        assert all(node.wake_at() == np.inf for node in cluster.nodes.values())
        assert cluster.network.now < 2 * LOCKSTEP.deadline


def test_observations_wait_up_to_a_bound() -> None:
    node = Protocol(config(2).role("a"), 1, 0.0)  # the neighbor never comes
    for _ in range(MOST_WAITING):
        node.observe([1.0, 2.0], 1, 0.0)
    assert node.is_full
    with pytest.raises(InputError, match="1024 observations wait for their round; that is the most; observe more slow"):
        node.observe([1.0, 2.0], 1, 0.0)
    assert len(node.waiting) == MOST_WAITING
    events = node.wake(LOCKSTEP.deadline)
    assert sum(isinstance(event, Scored) for event in events) == MOST_WAITING
    assert not node.waiting


@pytest.mark.parametrize(
    ("x", "y", "match"),
    [
        ([np.nan, 1], 1, "inputs must be finite; drop the sample or fill it in"),
        ([np.inf, 1], 1, "inputs must be finite"),
        ([1], 1, r"x has shape \(1,\); this network takes 2 numbers"),
        ("ab", 1, "an input is 2 numbers"),
        ([1, 2], np.nan, "label nan; labels of logistic loss are 0 and 1, or -1 and 1"),
        ([1, 2], 0.5, "label 0.5; labels of logistic loss are 0 and 1, or -1 and 1"),
    ],
)
def test_bad_samples_are_refused_and_change_nothing(x: Any, y: Any, match: str) -> None:
    node = alone()
    with pytest.raises(InputError, match=match):
        node.observe(x, y, 0.0)
    assert (node.round, len(node.waiting), node.learning.state.theta.any()) == (0, 0, False)


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
@pytest.mark.parametrize("quantizer", [None, QSGD(bits=4), "nearest", "sign"], ids=str)
@pytest.mark.parametrize("eta", [1e3, 1e30])
def test_a_model_that_diverges_halts_and_is_silent(timing: Timing, quantizer: Any, eta: float) -> None:
    network, (x, y) = config(3, timing=timing, quantizer=quantizer), stream(3, 60)
    wild = replace(network, method=network.method.replace(eta=eta, loss="squared"))
    cluster = Cluster(replace(network, method=network.method.replace(loss="squared")), DELAY)
    cluster.network.leave("c")
    node = Protocol(wild.role("c"), 7, 0.0)
    cluster.add(node)
    for j, id in enumerate("abc"):
        cluster.network.feed(id, zip(x[:, j], y[:, j], strict=True))
    cluster.network.run(60.0)
    own = [event for _, id, event in cluster.events if id == "c"]
    assert [type(event) for event in own].count(Diverged) == 1
    assert isinstance(own[-1], Diverged)
    assert node.diverged
    assert (node.wake_at(), node.outgoing()) == (np.inf, [])
    assert not node.receive("b", b"anything", 61.0)
    assert not node.outgoing()


def test_rounds_end_before_they_overflow() -> None:
    node = alone()
    node.learning.round = LAST_ROUND
    with pytest.raises(InputError, match="round 4294967295 was the last that fits a frame; restart the network"):
        node.observe([1.0, 2.0], 1, 0.0)


def test_a_neighbor_cannot_spend_all_rounds_at_once() -> None:
    cluster = Cluster(config(2), DELAY)
    cluster.network.run(1.0)
    cluster.nodes["b"].learning.round = MOST_SKIPPED + 5
    cluster.network.leave("a")
    cluster.join("a", 7)
    cluster.network.run(2.0)
    assert cluster.nodes["a"].links["b"].round == MOST_SKIPPED + 5
    assert cluster.nodes["a"].round < 100


@settings(max_examples=30)
@given(data=st.lists(st.one_of(st.binary(max_size=80), st.integers(0, 2**16 - 1)), max_size=20), seed=st.integers(0, 9))
def test_whatever_bytes_come_nothing_is_raised(data: list[bytes | int], seed: int) -> None:
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 6)
    valid: list[bytes] = []
    send = cluster.network._send

    def overhear(sender: str, receiver: str, data: bytes) -> None:
        if sender == "b":
            valid.append(data)
        send(sender, receiver, data)

    cluster.network._send = overhear  # type: ignore[method-assign]
    cluster.feed(x, y)
    cluster.network.run(0.1)
    node, rng = cluster.nodes["a"], np.random.default_rng(seed)
    for item in data:
        frame = bytearray(item if isinstance(item, bytes) else valid[item % len(valid)])
        if not isinstance(item, bytes):
            for _ in range(rng.integers(3)):
                frame[rng.integers(len(frame))] ^= 1 << rng.integers(8)
        node.receive("b", bytes(frame), cluster.network.now)
        node.receive("stranger", bytes(frame), cluster.network.now)
    node.outgoing()
    cluster.network.run(0.2)
    assert np.isfinite(node.learning.state.theta).all()


def test_a_neighbor_far_ahead_of_all_rounds_is_no_reason_to_take_them() -> None:
    network = config(2)
    node = Protocol(network.role("a"), 7, 0.0)
    node.end(0.0)
    node.came("b", 0.0)
    far = 2**31 + 100
    node.receive("b", wire.write_hello(9, far, node.neighbors.contract), 0.0)
    node.receive("b", wire.write_snapshot(9, far, np.zeros(node.learning.shape, dtype=np.float32)), 0.0)
    assert node.links["b"].state is LinkState.SYNCED
    assert node.round == 0
    assert len(node.outgoing()) < 5


@pytest.mark.parametrize("quantizer", ["nearest", "qsgd"])
def test_a_model_that_mixing_carries_off_is_noticed_without_a_label(quantizer: str, tmp_path: Path) -> None:
    network = config(2, quantizer=quantizer, gamma=1.0)
    node = Protocol(network.role("a"), 7, 0.0)
    node.came("b", 0.0)
    away = np.zeros(node.learning.shape, dtype=np.float32)
    away[0, 0, :2] = 3.2e38, -3.2e38  # the sum is finite
    events: list[Event] = []
    for life in range(30):
        node.receive("b", wire.write_hello(10 + life, node.round + 5, node.neighbors.contract), float(life))
        node.receive("b", wire.write_snapshot(10 + life, node.round + 5, away), float(life))
        events += node.observe([0.1, 0.2], None, float(life))
        finite = np.isfinite(node.learning.state.theta).all()
        assert finite or node.diverged
    assert node.diverged
    assert sum(isinstance(event, Diverged) for event in events) == 1
    with pytest.raises(InputError, match="diverged"):
        checkpoint.save(tmp_path / "a.npz", node, clean=False)
