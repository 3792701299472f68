from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from omkl import QSGD, Choco, Complete, Gossip, Nearest, features, gaussian, noise, wire
from omkl.algorithm import State
from omkl.learners import SGD
from omkl.methods import Info, Round
from omkl.simulator import rounds, tiles
from omkl.simulator.engine import HERE
from omkl.simulator.measures import metrics
from omkl.simulator.networks import Dense, Edges, Lists
from omkl.simulator.waves import waves
from omkl.topology import build
from tests.conftest import frames

pytest.importorskip("jax.experimental.pallas.triton")

NODES = 9


class Sample(NamedTuple):
    """What a round is given: inputs, or their angles, targets, and what tells rounds and seeds apart."""

    projected: Any
    y: Any
    V: Any
    key: noise.Key
    t: Any


def lists(graph: Any = "path", nodes: int = NODES) -> Lists:
    ids, weights = build(graph, nodes).neighbors()
    return Lists(jnp.asarray(ids), jnp.asarray(weights, dtype=jnp.float32))


def samples(method: Gossip, count: int, nodes: int = NODES, d: int = 2, seeds: int = 1, bank: Any = None) -> Any:
    """Yield rounds of random samples."""
    rng = np.random.default_rng(d)
    V = np.stack([features.draw(bank or method.bank.kernels, method.bank.features, d, seed) for seed in range(seeds)])
    key = noise.fold(noise.key(list(range(seeds)), "quantizer"), np.arange(nodes)[:, None, None])
    for t in range(count):
        x = rng.normal(size=(nodes, d)).astype(np.float32)
        projected = x if d <= rounds.SHORT_INPUT else np.einsum("jd,spfd->jspf", x, V)
        y = rng.choice([-1, 1], size=(nodes, 1)).astype(np.float32)
        yield jax.tree.map(jnp.asarray, Sample(projected, y, V, key, np.uint32(t)))


def some_state(method: Gossip, nodes: int = NODES, seeds: int = 1) -> State:
    """Return a state in which no two numbers are equal."""
    rng = np.random.default_rng(1)
    start = method.init(np, (nodes, seeds), 1)
    theta, hidden = (rng.normal(size=start.theta.shape).astype(np.float32) for _ in range(2))
    low = -rng.exponential(size=start.log_weights.shape).astype(np.float32)
    log_weights = low - low.max(axis=-1, keepdims=True)
    return State(jnp.asarray(theta), jnp.asarray(hidden), jnp.asarray(log_weights), ())


def stated(method: Gossip, network: Any, state: State, sample: Sample) -> tuple[State, Info]:
    """Return a round as the method states it."""
    projected, y, V, key, t = sample
    angles = projected if projected.ndim > 2 else jnp.einsum("jd,spfd->jspf", projected, V, precision="highest")
    z = waves(angles)[..., : len(method.bank.kernels), :] * method.bank.features**-0.5
    shape = (len(method.bank.kernels), 1, 2 * method.bank.features)
    uniforms = noise.dither(noise.fold(key, t), shape) if method.dithered else None
    return method.step(state, Round(z, y[:, None, :], uniforms), network)


def tiled(method: Gossip, network: Any, measured: bool, state: State, sample: Sample) -> tuple[State, Info | None]:
    return tiles.step(method, state, *sample, network, measured)


def assert_same(method: Gossip, network: Any, state: State, rounds: Any, within: float = 1e-6) -> State:
    """Hold the kernel's rounds, each from the state that the method came to, against the method's."""
    assert tiles.knows(method, network, 1)
    here, there = jax.jit(partial(stated, method, network)), jax.jit(partial(tiled, method, network, True))
    different, near = [], partial(np.testing.assert_allclose, rtol=within, atol=within)
    for sample in rounds:
        after, seen = here(state, sample)
        kernels, found = there(state, sample)
        if method.dithered:
            different.append(np.asarray(kernels.hidden) != np.asarray(after.hidden))
        else:
            near(kernels.hidden, after.hidden)
        if not different or not different[-1].any():
            np.testing.assert_array_equal(found.message_bytes, seen.message_bytes)
        jax.tree.map(near, (kernels._replace(hidden=()), found[:-1]), (after._replace(hidden=()), seen[:-1]))
        assert jax.tree.map(jnp.shape, (kernels, found)) == jax.tree.map(jnp.shape, (after, seen))
        state = after
    assert not different or np.mean(different) < 1e-3
    return state


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=5)], ids=str)
@pytest.mark.parametrize("kernels", [1, 3, 6])
def test_frames_are_counted_as_the_wire_counts(quantizer: QSGD, kernels: int) -> None:
    message, bits, steps = frames(quantizer, kernels, 40)
    found = jax.jit(partial(tiles._frame_bytes, quantizer, 40))(sum(bits), list(steps))
    expected = wire.message_bytes(message, quantizer)
    assert np.mean(found != expected) <= 0.002
    np.testing.assert_allclose(found, expected, atol=1)  # a sum may fall on either side of a whole byte


def gossip(kernels: int = 2, width: int = 4, **options: Any) -> Gossip:
    given: dict[str, Any] = {"quantizer": QSGD(bits=4), "eta": 0.5, "gamma": 0.3, **options}
    return Gossip(kernels=gaussian(1, 3, 5)[:kernels], features=width, **given)


@pytest.mark.parametrize(
    ("quantizer", "d"),
    [(QSGD(bits=4), 1), (QSGD(bits=4), 23), (QSGD(bits=1, rescale=True), 4), (None, 4), (None, 23)],
    ids=str,
)
def test_rounds_are_the_methods(quantizer: QSGD | None, d: int) -> None:
    method = gossip(quantizer=quantizer, regularization=0.1, weight_rate=2.0)
    assert_same(method, lists(), some_state(method, seeds=2), samples(method, 3, d=d, seeds=2))


@pytest.mark.parametrize(("kernels", "width"), [(1, 20), (3, 4)])
def test_banks_and_widths(kernels: int, width: int) -> None:
    method = gossip(kernels, width)
    assert_same(method, lists("ring"), some_state(method), samples(method, 3))


@pytest.mark.parametrize(("nodes", "seeds"), [(2, 1), (5, 7)])
def test_any_number_of_rows(nodes: int, seeds: int) -> None:
    method = gossip(2)
    assert_same(method, lists("path", nodes), some_state(method, nodes, seeds), samples(method, 2, nodes, seeds=seeds))


def test_neighbors_that_are_many_or_padding() -> None:
    method = gossip(1)
    assert_same(method, lists("star"), some_state(method), samples(method, 2))


def test_rounds_of_a_run() -> None:
    # From the start, where there is nothing to send, until levels have been drawn for a while.
    method = gossip(eta=0.1)
    end = assert_same(method, lists(), method.init(jnp, (NODES, 1), 1), samples(method, 40))
    assert np.asarray(end.hidden).any()


def test_choco() -> None:
    method = Choco(quantizer=QSGD(bits=4), features=4, gamma=0.3, eta=0.5)
    assert_same(method, lists(), some_state(method), samples(method, 3))


@pytest.mark.parametrize("d", [2, 23])
def test_the_first_kernels_of_a_longer_bank(d: int) -> None:
    method = gossip(2)
    rounds = samples(method, 2, d=d, seeds=2, bank=gaussian(1, 3, 5, 7))
    assert_same(method, lists(), some_state(method, seeds=2), rounds)


def test_a_learner_of_its_own_rate() -> None:
    method = gossip(learner=SGD(0.05))
    assert_same(method, lists(), some_state(method), samples(method, 2))


def test_one_node() -> None:
    network = Lists(jnp.zeros((1, 1), dtype=jnp.int32), jnp.zeros((1, 1)))
    method = gossip()
    assert_same(method, network, some_state(method, 1, 3), samples(method, 2, 1, seeds=3))


@pytest.mark.parametrize("d", [2, 23])
def test_zero_inputs(d: int) -> None:
    method = gossip(regularization=0)
    nothing = (sample._replace(projected=0 * sample.projected) for sample in samples(method, 5, d=d))
    assert_same(method, lists(), method.init(jnp, (NODES, 1), 1), nothing)


def test_large_outputs() -> None:
    method = gossip()
    state = some_state(method)
    assert_same(method, lists(), state._replace(theta=100 * state.theta), samples(method, 1), within=1e-5)


def test_what_is_not_measured_is_not_returned() -> None:
    method, network = gossip(), lists()
    (sample,) = samples(method, 1, seeds=2)
    measured, info = jax.jit(partial(tiled, method, network, True))(some_state(method, seeds=2), sample)
    alone, nothing = jax.jit(partial(tiled, method, network, False))(some_state(method, seeds=2), sample)
    assert info is not None
    assert nothing is None
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7), alone, measured)


@pytest.mark.parametrize(
    "method",
    [
        Complete(),
        Choco(fresh=True),
        gossip(quantizer=Nearest()),
        gossip(quantizer="sign"),
        gossip(quantizer=QSGD(bits=4, block=4)),
        gossip(loss="squared"),
        gossip(loss="softmax"),
        gossip(weigh_first=True),
        gossip(learner=type("Mine", (SGD,), {})(0.1)),
        type("Mine", (Gossip,), {})(),
        gossip(2, 65),
    ],
    ids=lambda method: repr(method)[:70],
)
def test_other_methods_are_left_to_the_engine(method: Any) -> None:
    assert not tiles.knows(method, lists(), 1)


def test_the_widest_rows() -> None:
    assert tiles.knows(gossip(2, 64, quantizer=None), lists(), 1)
    assert not tiles.knows(gossip(2, 65, quantizer=None), lists(), 1)


def test_other_networks_and_outputs_are_left_to_the_engine() -> None:
    network = lists()
    own_weights = network._replace(weights=jnp.stack([network.weights] * 3, axis=-1))
    nobody = lists(nx.empty_graph(1), 1)  # not even padding
    assert tiles.knows(gossip(), network, 1)
    assert not tiles.knows(gossip(), network, 3)
    for other in (Dense(jnp.zeros((NODES, NODES))), Edges(*map(jnp.asarray, network.edges())), own_weights, nobody):
        assert not tiles.knows(gossip(), other, 1)


def test_a_cpu_is_not_ready() -> None:
    assert tiles.ready() == (jax.default_backend() == "gpu")


@pytest.mark.parametrize(("group", "d"), [(1, 5), (3, 2)])
def test_a_chunk_is_the_engines(group: int, d: int) -> None:
    # A method that the kernel does not know shares the pass, with a shorter bank.
    methods = (gossip(2, quantizer=None), gossip(1, quantizer=Nearest(), eta=0.05))
    first, *_ = parts = list(samples(methods[0], 6, d=d, seeds=2))
    X = np.random.default_rng(0).normal(size=(6, NODES, d)).astype(np.float32)
    given = rounds.Given(features.Features(first.V), first.key, (lists(), lists("ring")))
    run = jax.jit(rounds._placed, static_argnums=0)

    def outcome(tiled: bool) -> Any:
        program = rounds.Program(HERE, methods, metrics, True, group, True, tiled)
        start = [method.init(jnp, (NODES, 2), 1) for method in methods]
        return run(program, start, jnp.arange(6, dtype=jnp.uint32), X, jnp.stack([part.y for part in parts]), given)

    states, records = outcome(True)
    assert records[0].loss.shape == (6 // group, 2)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), (states, records), outcome(False))


def test_models_too_many_to_count_keep_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    method = gossip()
    taken: list[Any] = []
    one = next(iter(samples(method, 1, d=2, seeds=1)))
    given = rounds.Given(features.Features(one.V), one.key, (lists(),))
    program = rounds.Program(HERE, (method,), metrics, True, 1, True, True)
    step = tiles.step

    def noted(*args: Any) -> Any:
        taken.append(args)
        return step(*args)

    monkeypatch.setattr(tiles, "step", noted)
    start = [method.init(jnp, (NODES, 1), 1)]
    inputs = jnp.uint32(0), jnp.zeros((NODES, 2)), one.y

    def trace() -> None:
        jax.eval_shape(lambda states: rounds._round(program, given, states, inputs, True), start)

    trace()
    assert len(taken) == 1
    monkeypatch.setattr(tiles, "MOST_NUMBERS", start[0].theta.size)
    trace()
    assert len(taken) == 1
