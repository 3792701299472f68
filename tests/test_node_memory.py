"""The network in memory: the same seed gives the same run, and its faults are those asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl.node.events import Gossiped
from omkl.node.links import LinkState
from omkl.node.transports.memory import Conditions, Network
from tests.node_cluster import Cluster, config, run, stream


class Log(Network):
    """Notes when each message is delivered."""

    def __init__(self, conditions: Conditions, seed: int) -> None:
        super().__init__(conditions, seed)
        self.delivered: list[tuple[float, str, str, bytes]] = []

    def _deliver(self, sender: str, receiver: str, data: bytes) -> None:
        self.delivered.append((self.now, sender, receiver, data))


def sent(conditions: Conditions, seed: int = 0, count: int = 200) -> list[tuple[float, int]]:
    """Return when the messages 0, 1, ... sent ten milliseconds apart arrive."""
    network = Log(conditions, seed)
    for k in range(count):
        network.run(k / 100)
        network._send("a", "b", k.to_bytes(2, "big"))
    network.run()
    return [(now, int.from_bytes(data, "big")) for now, _, _, data in network.delivered]


@given(st.integers(0, 2**16), st.floats(0, 0.3), st.booleans())
def test_a_run_is_a_function_of_its_seed(seed: int, loss: float, ordered: bool) -> None:
    conditions = Conditions(delay=0.01, jitter=0.1, loss=loss, duplication=0.1, ordered=ordered)
    assert sent(conditions, seed) == sent(conditions, seed)


def test_delays() -> None:
    assert sent(Conditions(delay=0.5)) == [(k / 100 + 0.5, k) for k in range(200)]
    late = [now - k / 100 for now, k in sent(Conditions(delay=0.5, jitter=0.2, ordered=False))]
    assert 0.5 <= min(late) < 0.52
    assert 0.68 < max(late) <= 0.7


def test_order_is_kept_unless_told_otherwise() -> None:
    for ordered in (True, False):
        arrived = sent(Conditions(jitter=0.2, ordered=ordered))
        assert ([k for _, k in arrived] == sorted(k for _, k in arrived)) == ordered
        assert [now for now, _ in arrived] == sorted(now for now, _ in arrived)


def test_loss_and_duplication_are_as_frequent_as_asked_for() -> None:
    assert len(sent(Conditions(loss=0.25), count=4000)) == pytest.approx(3000, rel=0.05)
    assert len(sent(Conditions(duplication=0.25), count=4000)) == pytest.approx(5000, rel=0.05)
    assert not sent(Conditions(loss=1.0))


def test_seeds_differ() -> None:
    conditions = Conditions(jitter=0.1, loss=0.1)
    assert sent(conditions, 0) != sent(conditions, 1)


def test_time_passes_without_events() -> None:
    network = Network()
    network.run(3.0)
    assert network.now == 3.0
    network.run()
    assert network.now == 3.0


@pytest.mark.parametrize("noticed", [True, False])
def test_a_cut_loses_what_is_under_way(noticed: bool) -> None:
    cluster = Cluster(config(2), Conditions(delay=0.1))
    cluster.network.run(1.0)
    cluster.network.observe("a", [1.0, 2.0], 1)
    cluster.network.cut("a", "b", noticed)
    cluster.network.run(1.2)
    assert cluster.nodes["b"].links["a"].have == 0
    assert cluster.states() == {LinkState.CONNECTING if noticed else LinkState.SYNCED}
    cluster.network.mend("a", "b")
    cluster.network.run()
    assert cluster.states() == {LinkState.SYNCED}
    cluster.check_copies()


def test_what_a_node_has_sent_arrives_though_it_leaves() -> None:
    cluster = Cluster(config(2), Conditions(delay=0.1))
    cluster.network.run(1.0)
    cluster.network.observe("a", [1.0, 2.0], 1)
    cluster.network.leave("a")
    cluster.network.run(1.2)
    assert list(cluster.nodes) == ["b"]
    assert cluster.nodes["b"].links["a"].have == 1
    cluster.network.run()


def test_streams_are_given_sample_by_sample_and_their_end_told() -> None:
    cluster = run(config(1), *stream(1, 7))
    (node,) = cluster.nodes.values()
    assert [event.round for _, event in cluster.of(Gossiped)] == list(range(1, 8))
    assert node.ended
    assert not node.waiting


def test_events_are_told_with_their_time_and_node() -> None:
    cluster = run(config(3), *stream(3, 5), Conditions(delay=0.25))
    times = [now for now, _, _ in cluster.events]
    assert times == sorted(times)
    assert {id for _, id, _ in cluster.events} == {"a", "b", "c"}
    assert np.unique(np.mod(times, 0.25)).tolist() == [0.0]
