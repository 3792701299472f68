"""A node's compiled rounds are those over arrays: what it hears and holds to the bit, what it computes to rounding."""

import logging
import sys
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import omkl
from omkl import (
    QSGD,
    AdaGrad,
    Gossip,
    Nearest,
    Newton,
    Pace,
    Pooled,
    Reach,
    Shared,
    Softmax,
    Squared,
    algorithm,
    noise,
    topology,
)
from omkl.algorithm import State
from omkl.compiled import plan
from omkl.compiled.node import Loops
from omkl.features import Features
from omkl.learners import SGD
from omkl.losses import Huber, SmoothedHinge
from omkl.node import halves as texts
from omkl.node.halves import Arrays
from omkl.node.protocol import Protocol
from omkl.quantizers import Exact, Message
from omkl.storage import leaves
from tests.node_cluster import Cluster, config, stream

ROUNDING = 2e-5  # relative, of a coefficient, a weight or a loss, in one round from the same state
STEP = 2**-8  # relative, of a step: its ninth bit is rounded up, and rounding of the norm may decide it
FLIPPED = 0.005  # part of all levels that rounding may flip, by one
ROUNDS = 25

LOSSES: list[Any] = ["logistic", SmoothedHinge(), Softmax(classes=3), Squared(outputs=2), Huber(outputs=2)]
CHANNELS = [QSGD(3), QSGD(8, rescale=True), QSGD(3, block=4), Nearest(2.5), Nearest(0.5, block=2), "sign", None]
LEARNERS: list[Any] = [SGD(0.3), SGD(0.3, decay="sqrt"), AdaGrad(0.3), Newton(), Newton(forget=0.9, block=4)]
PAPER = Gossip(learner=SGD(0.3), weight_rate=0.7, gamma=0.4, regularization=0.01, features=10, reach=None)
POOLED: dict[str, Any] = {"learner": Pooled(), "reach": Reach(most=4)}
DEFAULT = omkl.recommended(basis=omkl.Landmarks(rank=12, rows=80), gamma=0.3)
RING = topology.build("ring", 5)

METHODS = {
    "default": DEFAULT,
    "frugal": omkl.frugal(basis=omkl.Landmarks(rank=12, rows=80), gamma=0.3),
    "paper": PAPER,
    **{f"default, {one}": DEFAULT.replace(loss=one) for one in LOSSES[1:]},
    **{f"default, {one}": DEFAULT.replace(quantizer=one) for one in CHANNELS if getattr(one, "block", None) is None},
    **{f"{one}": PAPER.replace(quantizer=one) for one in CHANNELS},
    **{f"{one}": PAPER.replace(learner=one) for one in LEARNERS},
    **{f"{one[0]}, {one[1]}": PAPER.replace(loss=one[0], learner=one[1]) for one in product(LOSSES[1:], LEARNERS[::3])},
    "shared": DEFAULT.replace(learner=Shared(), reach=None, common_weights=False, basis=omkl.Basis(rank=6, rows=80)),
    "clip": PAPER.replace(clip=0.05),
    "default, clip": DEFAULT.replace(clip=0.3),
    "momentum": PAPER.replace(momentum=0.6),
    "common weights": PAPER.replace(common_weights=True, quantizer=Nearest(), loss=Softmax(classes=3)),
    "pooled, one prior": DEFAULT.replace(learner=Pooled(priors=(30.0,), forget=0.95)),
    "pooled, no reach": DEFAULT.replace(reach=None, common_weights=False, momentum=0.0),
}


class Pair(NamedTuple):
    """Both texts of one node, and what it is."""

    method: Gossip
    made: Features
    arrays: Arrays
    loops: Loops

    @property
    def shape(self) -> tuple[int, ...]:
        return self.arrays.hidden.shape

    def meet(self, state: State) -> None:
        """Give both one state."""
        self.arrays.state = self.loops.state = state


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pair(method: Gossip) -> Pair:
    method = method.on(RING)
    rows = None if method.bank.basis is None else drawn((200, 3), 5)
    made = method.bank.draw(3, 0, rows)
    state = method.init(np, (), outputs(method), made.spectrum)
    given = method, made, noise.fold(noise.key(0, "quantizer"), 2), state
    assert plan.unknown_part(method) is None
    return Pair(method, made, Arrays(*given), Loops(*given))


def outputs(method: Gossip) -> int:
    return int(getattr(method.objective, "outputs", getattr(method.objective, "classes", 1)))


def label(method: Gossip, seed: int) -> Any:
    rng, loss = np.random.default_rng(seed), method.objective
    if isinstance(loss, Softmax):
        return loss.encode(rng.integers(3, size=1))[0]
    return (
        rng.normal(size=2).astype(np.float32) if hasattr(loss, "outputs") else rng.choice([-1, 1], 1).astype(np.float32)
    )


def codecs(pair: Pair) -> list[Any]:
    kernels, outputs, n = pair.shape
    return [texts.codec((kernels, outputs, n), pair.method, compiled) for compiled in (False, True)]


def check_message(pair: Pair, before: State, found: Message, hidden: np.ndarray) -> None:
    """What is said is absorbed alike by all, in bytes too."""
    np.testing.assert_array_equal(hidden, algorithm.absorb(before.hidden, found))
    bodies = [codec.pack(found) for codec in codecs(pair)]
    assert bodies[0] == bodies[1]
    for codec in codecs(pair):
        copy = before.hidden.copy()
        assert codec.add(*bodies[0], copy)
        assert copy.tobytes() == hidden.tobytes()


def check_levels(pair: Pair, due: Message, found: Message) -> int:
    """Return how many levels rounding has flipped, all of them by one."""
    assert due.levels.dtype == found.levels.dtype
    assert due.step.dtype == found.step.dtype
    assert (due.levels.shape, due.step.shape) == (found.levels.shape, found.step.shape)
    if isinstance(pair.method.channel.quantizer, Exact):
        close("values", found.levels, due.levels)
        return 0
    np.testing.assert_allclose(found.step, due.step, rtol=STEP)
    apart = np.abs(found.levels.astype(int) - due.levels)
    assert apart.max() <= (2 if pair.method.channel.quantizer.name == "sign" else 1)
    return int(np.count_nonzero(apart))


def close(what: str, found: Any, due: Any) -> None:
    due = np.asarray(due)
    np.testing.assert_allclose(found, due, rtol=0, atol=ROUNDING * (1 + np.abs(due).max(initial=0)), err_msg=what)


def check_state(due: State, found: State, but: tuple[str, ...] = ()) -> None:
    for name in (one for one in State._fields if one not in but):
        parts = leaves(getattr(due, name)), leaves(getattr(found, name))
        assert len(parts[0]) == len(parts[1])
        for one, other in zip(*parts, strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype
            assert np.shape(one) == np.shape(other)
            close(name, other, one)


@pytest.mark.parametrize("name", METHODS)
def test_rounds_are_those_over_arrays(name: str) -> None:
    """Round after round from one state, with copies of two neighbors, of which one is left out now and then."""
    both, flipped = pair(METHODS[name]), 0
    for t in range(ROUNDS):
        copies = (both.arrays.hidden + 0.2 * drawn((2, *both.shape), 3 * t)).astype(np.float32)
        weights = np.array([0.3, 0.3 * (t % 5 > 0)], np.float32)
        before = both.arrays.state
        both.meet(before)
        heard = copies, weights, t, 1.0 if t % 5 else 0.5
        (due, one), (found, other) = (half.gossip(*heard) for half in (both.arrays, both.loops))
        assert one
        assert other
        flips = check_levels(both, due, found)
        check_message(both, before, found, both.loops.hidden)
        check_message(both, before, due, both.arrays.hidden)
        check_state(both.arrays.state, both.loops.state, ("hidden", "hearing") if flips else ("hidden",))
        flipped += flips
        both.meet(both.arrays.state)
        sample = drawn((3,), 3 * t + 1), label(both.method, 3 * t + 2)
        np.testing.assert_allclose(both.loops.predict(sample[0]), both.arrays.predict(sample[0]), atol=ROUNDING)
        (output, loss, sound), (same, cost, told) = (half.learn(*sample) for half in (both.arrays, both.loops))
        assert sound
        assert told
        close("output", same, output)
        close("loss", cost, loss)
        check_state(both.arrays.state, both.loops.state)
    assert flipped <= FLIPPED * ROUNDS * both.arrays.hidden.size
    if both.method.mixing.momentum:
        assert np.abs(both.loops.state.velocity).max() > 0


@pytest.mark.parametrize("value", [0.0, 1.0, 1e30, 3e38, np.inf, np.nan])
def test_what_is_not_finite_is_seen(value: float) -> None:
    both = pair(PAPER.replace(quantizer=None))
    start, wrong, right = both.arrays.state, drawn(both.shape, 0), drawn(both.shape, 1)
    weights = np.zeros(3, dtype=np.float32)
    wrong[1, 0, 3:5] = value

    def outcomes(state: State, heard: bool) -> list[bool]:
        both.meet(state)
        if heard:
            return [half.gossip(right[None], weights[:1], 0, 1.0)[-1] for half in both[2:]]
        return [half.learn(drawn((3,), 2), np.ones(1, np.float32))[-1] for half in both[2:]]

    mixed = start._replace(theta=wrong, hidden=right), start._replace(theta=right, hidden=wrong)
    assert outcomes(mixed[0], True) == [value < 1e38] * 2
    assert outcomes(mixed[1], True) == [np.isfinite(value)] * 2
    assert outcomes(mixed[0], False) == [value < 1e38] * 2
    weighed = start._replace(theta=right, log_weights=wrong[1, 0, 2:5])
    assert outcomes(weighed, False) == [np.isfinite(value)] * 2


@pytest.mark.parametrize("name", ["default", "paper", "QSGD(bits=3, rescale=False, block=4)", "sign", "momentum"])
def test_a_state_is_a_copy_and_comes_back(name: str) -> None:
    both = pair(METHODS[name])
    loops, sample = both.loops, (drawn((3,), 1), label(both.method, 2))
    for t in range(3):
        loops.gossip(drawn((1, *both.shape), t), np.full(1, 0.5, np.float32), t, 1.0)
        loops.learn(*sample)
    before = loops.state
    kept = [np.array(leaf) for leaf in leaves(before)]
    loops.learn(*sample)
    for one, other in zip(kept, leaves(before), strict=True):
        np.testing.assert_array_equal(one, other)
    after = loops.state
    loops.state = before
    for one, other in zip(kept, leaves(loops.state), strict=True):
        np.testing.assert_array_equal(one, other)
    loops.learn(*sample)
    for one, other in zip(leaves(after), leaves(loops.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_inputs_are_predicted_one_by_one() -> None:
    both, X = pair(DEFAULT), drawn((4, 2, 3), 0)
    both.loops.learn(X[0, 0], np.ones(1, np.float32))
    found = both.loops.predict(X)
    assert found.shape == (4, 2, 1)
    np.testing.assert_array_equal(found[3, 1], both.loops.predict(X[3, 1]))


@pytest.mark.parametrize(
    "name", ["default", "default, clip", "QSGD(bits=3, rescale=False, block=None)", "sign", "None"]
)
def test_nodes_of_both_texts_hold_the_same(name: str) -> None:
    """A ring of nodes that run the one text and the other: every copy is its owner's hidden state, to the bit."""
    changes = METHODS[name].settings()
    del changes["eta"]
    given = config(5, "ring", calibration=drawn((200, 2), 5), **changes)
    cluster, samples = Cluster(given), stream(5, 30)
    for k, id in enumerate(given.ids):
        cluster.stop(id)
        cluster.add(Protocol(replace(given.role(id), compiled=k % 2 == 0), 200 + k, 0.0))
    kinds = {type(node.learning._halves) for node in cluster.nodes.values()}
    assert kinds == {Arrays, Loops}
    cluster.feed(*samples)
    cluster.network.run()
    assert {node.round for node in cluster.nodes.values()} == {max(node.round for node in cluster.nodes.values())}
    cluster.check_copies()


@dataclass(frozen=True)
class Custom(SGD):
    """A rule that the loops do not know."""


def test_methods_that_the_loops_do_not_know_run_over_arrays_and_say_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    both = pair(PAPER)
    given = both.made, noise.fold(noise.key(0, "quantizer"), 2), both.arrays.state
    assert isinstance(texts.halves(PAPER, *given), Loops)
    assert isinstance(texts.halves(PAPER.replace(pace=Pace(2)), *given), Loops)
    assert not caplog.messages
    for other, part in (
        (PAPER.replace(learner=Custom(0.1)), "Custom"),
        (PAPER.replace(weigh_first=True), "weigh_first"),
        (PAPER.replace(sending="sampled"), "sending sampled"),
    ):
        assert isinstance(texts.halves(other, *given), Arrays)
        assert caplog.messages.pop() == f"rounds take longer, over arrays: there is no compiled text of {part}"
        caplog.clear()
    assert isinstance(texts.halves(PAPER, *given, compiled=False), Arrays)


def test_without_numba_all_methods_do(monkeypatch: pytest.MonkeyPatch) -> None:
    both = pair(PAPER)
    for module in ("node", "coder"):
        monkeypatch.setitem(sys.modules, f"omkl.compiled.{module}", None)
        monkeypatch.delattr(f"omkl.compiled.{module}", raising=False)
    given = both.made, noise.fold(noise.key(0, "quantizer"), 2), both.arrays.state
    assert isinstance(texts.halves(PAPER, *given), Arrays)
    assert type(codecs(both)[1]._body) is type(codecs(both)[0]._body)
