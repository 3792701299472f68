"""One node that lies, in frames that are valid: what it does to the others, with clipping and without."""

import numpy as np
import pytest
from benchmarks.poison import LIES, Liar, Lie, flipped, honest_losses, huge, louder, mixed, noisy, play

import omkl
from omkl.node.events import Diverged, Dropped, Event, Scored
from omkl.node.links import LinkState
from omkl.quantizers import Message
from tests import node_cluster, numpy_run

METHOD = omkl.Gossip(features=8, eta=1.0, gamma=0.5, quantizer=omkl.Nearest(2.5), clip=0.35)


def loss(method: omkl.Gossip, lie: str, graph: str = "ring", liar: int = 3) -> tuple[float, int]:
    X, y = node_cluster.stream(8, 60)
    losses, halted = honest_losses(method, graph, X, y, LIES[lie], 0, liar)
    return float(losses.mean()), halted


@pytest.mark.parametrize("graph", ["ring", "path"])
@pytest.mark.parametrize("quantizer", [omkl.Nearest(2.5), None], ids=["nearest", "exact"])
def test_a_liar_is_bounded(graph: str, quantizer: omkl.Nearest | None) -> None:
    # Seven honest nodes, of which two sit beside the liar: more than one of twenty can do to the mean.
    method = METHOD.replace(quantizer=quantizer)
    clean, _ = loss(method.replace(clip=None), "nobody", graph)
    for lie in LIES:
        lied, halted = loss(method, lie, graph)
        assert halted == 0
        assert lied < 1.08 * clean, lie


@pytest.mark.parametrize("lie", ["huge", "louder", "noisy"])
def test_without_clipping_it_is_not(lie: str) -> None:
    lied, _ = loss(METHOD.replace(clip=None), lie)
    assert lied > 1e6


@pytest.mark.parametrize("quantizer", [omkl.Nearest(2.5), omkl.QSGD(bits=3, rescale=True), None], ids=str)
@pytest.mark.parametrize("lie", [huge, flipped, louder, noisy, mixed])
def test_lies_are_valid_frames(lie: Lie, quantizer: omkl.Nearest | None) -> None:
    events: list[Event] = []
    config = node_cluster.config(3, quantizer=quantizer, clip=0.35)
    network = play(config, *node_cluster.stream(3, 50), lie, 1, lambda now, id, event: events.append(event))
    liar = network.nodes["b"]
    assert isinstance(liar, Liar)
    for id in ("a", "c"):
        link = network.nodes[id].links["b"]
        assert (link.state, link.round) == (LinkState.SYNCED, liar.round)
        np.testing.assert_array_equal(link.copy, liar.shown)
    assert not [event for event in events if isinstance(event, Dropped)]
    assert not np.array_equal(liar.shown, liar.learning.state.hidden)


@pytest.mark.parametrize("clip", [None, 0.35])
def test_a_neighbor_at_the_end_of_the_numbers_is_left_out(clip: float | None) -> None:
    # Its hidden state is finite, but all of it together is not: messages and snapshots of it are refused.
    def edge(honest: Message, at: int) -> Message:
        return honest._replace(levels=np.full_like(honest.levels, 3e38 if at == 1 else 0))

    events: list[tuple[str, Event]] = []
    config = node_cluster.config(3, quantizer=None, clip=clip)
    X, y = node_cluster.stream(3, 10)
    network = play(config, X, y, edge, 1, lambda now, id, event: events.append((id, event)), until=100.0)
    kinds = [(id, type(event)) for id, event in events]
    assert kinds.count(("a", Scored)) == kinds.count(("c", Scored)) == 10
    assert ("a", Diverged) not in kinds
    assert network.nodes["a"].links["b"].state is LinkState.LEFT_OUT
    assert len(events) < 500  # it is asked now and then, not in circles


def test_honest_nodes_clip_as_the_algorithm_says() -> None:
    config = node_cluster.config(4, "ring", quantizer=None, eta=1.0, clip=0.1)
    X, y = node_cluster.stream(4, 60)
    stated = numpy_run.run(config.method, X, y, config.topology, config.seed).state
    free = numpy_run.run(config.method.replace(clip=None), X, y, config.topology, config.seed).state
    for j, node in enumerate(node_cluster.run(config, X, y).nodes.values()):
        np.testing.assert_allclose(node.learning.state.theta, stated.theta[j], atol=1e-5)
        assert np.abs(node.learning.state.theta - free.theta[j]).max() > 1e-3
