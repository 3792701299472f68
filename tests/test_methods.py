"""Every method through the declared protocol."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omkl import QSGD, SGD, Choco, Complete, Gossip, Landmarks, Local, algorithm, gaussian, recommended, topology, wire
from omkl.errors import InputError
from omkl.learners import Newton, Pooled
from omkl.methods import Method, Neighbors, Round, clipping, complete, gossip
from omkl.quantizers import Message, Quantizer

J, S, C, D = 5, 3, 2, 6


def network() -> Neighbors:
    index, weights = topology.build("ring", J).neighbors()
    return Neighbors(index, weights.astype(np.float32))


def rounds(method: Method, count: int, seeds: int = S) -> list[Round]:
    rng = np.random.default_rng(0)
    shape = (J, seeds, len(method.bank.kernels))
    return [
        Round(
            rng.normal(size=(*shape, 2 * D)).astype(np.float32),
            rng.normal(size=(J, 1, C)).astype(np.float32),
            rng.uniform(size=(*shape, C, 2 * D)).astype(np.float32) if method.dithered else None,
        )
        for _ in range(count)
    ]


def name(method: Method) -> str:
    return method.name + " fresh" * getattr(method, "fresh", False)


def sizes(method: Method, count: int = 3) -> list[np.ndarray]:
    """Return how large the messages of every round are."""
    state, found = method.init(np, (J, S), C), []
    for given in rounds(method, count):
        state, info = method.step(state, given, network())
        found.append(info.message_bytes)
    return found


def test_bytes_by_hand() -> None:
    # Four bytes of header; 3 kernels of 2 outputs of 12 numbers, exact; a sign takes a bit, and a step two bytes.
    settings: dict[str, Any] = {"features": D, "loss": "squared"}
    assert all((size == 4 + 3 * 2 * 12 * 4).all() for size in sizes(Gossip(quantizer=None, **settings)))
    assert all((size == 4 + 3 * 2 * 2 + 9).all() for size in sizes(Gossip(quantizer="sign", **settings))[1:])
    assert not np.any(sizes(Local(**settings)))
    first, *others = sizes(Gossip(**settings))
    assert (first == 4).all()  # zeros: not a step to send
    assert all(((size > 4 + 6) & (size < 4 + 6 * 2 + 6 * 12 * 4 / 8)).all() for size in others)


@pytest.mark.parametrize("method", [Gossip(), Choco(), Choco(fresh=True), Complete()], ids=name)
def test_sizes_are_those_of_the_frames(method: Gossip, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Message] = []

    def noted(message: Message, quantizer: Quantizer) -> np.ndarray:
        sent.append(message)
        return np.asarray(wire.message_bytes(message, quantizer))

    for module in (gossip, complete):
        monkeypatch.setattr(module, "message_bytes", noted)
    method = method.replace(features=D, eta=0.1, loss="squared")
    found = np.array(sizes(method, 20))
    codec = wire.Codec((len(method.bank.kernels), C, 2 * D), method.settings()["quantizer"])
    losses = 4 * len(method.bank.kernels) if isinstance(method, Complete) else 0
    packed = [
        len(wire.write_gossip(codec, 0, 0, Message(one.levels[place], one.step[place]), 0)) + losses
        for one in sent
        for place in np.ndindex(J, S)
    ]
    assert np.abs(found.ravel() - packed).max() <= 1
    assert found.mean() == pytest.approx(np.mean(packed), rel=0.005)


@pytest.mark.parametrize("method", [Gossip(features=D), Choco(features=D, fresh=True), Complete(features=D)], ids=name)
def test_sizes_that_nobody_reads_cost_nothing(method: Gossip, monkeypatch: pytest.MonkeyPatch) -> None:
    (given,) = jax.tree.map(jnp.asarray, rounds(method, 1))
    state = method.init(jnp, (J, S), C)

    def work(parts: slice) -> float:
        one = jax.jit(lambda state: method.step(state, given, jax.tree.map(jnp.asarray, network()))[parts])
        found = one.lower(state).compile().cost_analysis()
        assert found is not None
        return float(found["flops"])

    unread, read = work(slice(0, 1)), work(slice(0, 2))
    with monkeypatch.context() as patch:
        for module in (gossip, complete):
            patch.setattr(module, "message_bytes", lambda message, quantizer: jnp.zeros((J, S)))
        assert work(slice(0, 1)) == unread < work(slice(0, 2)) < read


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"eta": 0}, r"eta is 0\.0; a learning rate must be positive"),
        ({"eta": float("nan")}, "eta is nan"),
        ({"gamma": 0}, r"gamma is 0\.0; the consensus step must lie in \(0, 1\]"),
        ({"gamma": 1.5}, r"gamma is 1.5"),
        ({"gamma": float("nan")}, r"gamma is nan"),
        ({"clip": 0}, r"clip is 0\.0; it must be positive; None trusts every neighbor, else try 0\.1"),
        ({"clip": -1.0}, r"clip is -1\.0"),
        ({"clip": float("nan")}, r"clip is nan"),
        ({"clip": "0.3"}, r"clip is '0\.3'; it must be a number"),
        ({"features": 0}, "features is 0"),
        ({"features": 20.0}, "features is 20.0; it must be a whole number"),
        ({"eta": "0.1"}, "eta is '0.1'; it must be a number"),
        ({"eta": True}, "eta is True"),
        ({"kernels": ["gaussian"]}, "a bank is one kernel or more"),
        ({"quantizer": QSGD}, "the class QSGD; give a name or an object"),
        ({"kernels": ()}, r"kernels is \(\); a bank is one kernel or more"),
        ({"regularization": -1}, "regularization is -1"),
        ({"weight_rate": -1}, "weight_rate is -1"),
        ({"loss": "logistc"}, "did you mean 'logistic'"),
        ({"quantizer": "nearst"}, "did you mean 'nearest'"),
        ({"features": 100}, "delta must be positive"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Gossip(**settings)


def _one_round(method: Method) -> tuple[np.ndarray, np.ndarray]:
    """Two nodes, z = (1, 0), logistic loss, y = +1 and -1, theta = 1 to start with where the state allows."""
    given = Round(np.array([[[1, 0]]] * 2, dtype=np.float32), np.array([[1], [-1]], dtype=np.float32), None)
    state = method.init(np, (2,), 1)
    state = state._replace(theta=np.ones_like(state.theta) * np.array([1, 0], dtype=np.float32))
    after, info = method.step(state, given, Neighbors(np.array([[1], [0]]), np.array([[0.5], [0.5]], dtype=np.float32)))
    return method.models(after)[0], info.loss


def test_complete_applies_the_mean_gradient_by_hand() -> None:
    settings: dict[str, object] = {"kernels": gaussian(1), "features": 1, "eta": 0.5, "regularization": 0.0}
    up, down = 1 / (1 + math.exp(1)), 1 / (1 + math.exp(-1))  # slopes -up at y=+1 and down at y=-1
    for exchange in ("gradients", "models"):
        theta, loss = _one_round(Complete(**settings, quantizer=None, exchange=exchange))
        np.testing.assert_allclose(theta[:, 0, 0], [[1 - 0.5 * (down - up) / 2, 0]] * 2, rtol=1e-6)
        np.testing.assert_allclose(loss, [math.log1p(math.exp(-1)), math.log1p(math.exp(1))], rtol=1e-6)


@pytest.mark.parametrize(("combine", "factor"), [("mean", 1), ("sum", J)])
def test_complete_weighs_by_mean_or_sum(combine: str, factor: int) -> None:
    method = Complete(features=D, eta=0.1, loss="squared", combine=combine)
    state = method.init(np, (J, S), C)
    rng = np.random.default_rng(1)
    state = state._replace(theta=rng.normal(size=state.theta.shape).astype(np.float32))
    (given,) = rounds(method, 1)
    after, info = method.step(state, given, network())
    outputs = algorithm.predict(info.theta, info.log_weights, given.z).kernel_outputs
    losses = algorithm.kernel_losses(info.theta, outputs, given.y, method.objective, method.regularization)
    expected = np.exp(-0.1 * factor * losses.mean(axis=0, dtype=np.float64))
    np.testing.assert_allclose(
        algorithm.normalize(after.log_weights)[0], expected / expected.sum(axis=-1, keepdims=True), rtol=1e-4
    )


def test_complete_scores_before_the_weights_see_the_sample() -> None:
    method = Complete(features=D, eta=0.5, loss="squared")
    rng = np.random.default_rng(1)
    state = method.init(np, (J, S), C)
    state = state._replace(theta=rng.normal(size=state.theta.shape).astype(np.float32))
    (given,) = rounds(method, 1)
    _, info = method.step(state, given, network())
    equal = np.einsum("spcd,jspd->jspc", state.theta[0], given.z).mean(axis=2)
    np.testing.assert_allclose(info.output, equal, rtol=1e-4, atol=1e-5)


def test_choco_is_gossip_with_one_kernel() -> None:
    one = Gossip(kernels=gaussian(1), features=D, eta=0.1, loss="squared")
    choco = Choco(features=D, eta=0.1, loss="squared")
    a, b = one.init(np, (J, S), C), choco.init(np, (J, S), C)
    for given in rounds(one, 5):
        a, b = one.step(a, given, network())[0], choco.step(b, given, network())[0]
    np.testing.assert_array_equal(a.theta, b.theta)
    with pytest.raises(InputError, match="3 kernels; Choco learns with one"):
        Choco(kernels=gaussian(1, 3, 5))


def test_fresh_copies_mix_at_once_by_hand() -> None:
    # theta = (1, 0) and h = 0 at both: fresh copies agree at once, so nothing pulls; make node 2 start elsewhere.
    settings: dict[str, object] = {"features": 1, "eta": 1e-9, "gamma": 0.5, "regularization": 0.0, "quantizer": None}
    given = Round(np.zeros((2, 1, 2), dtype=np.float32), np.array([[1], [-1]], dtype=np.float32), None)
    pair = Neighbors(np.array([[1], [0]]), np.array([[0.5], [0.5]], dtype=np.float32))
    for fresh, expected in ((False, [1, 3]), (True, [1 + 0.25 * 2, 3 - 0.25 * 2])):
        method = Choco(fresh=fresh, **settings)
        state = method.init(np, (2,), 1)
        state = state._replace(theta=np.array([[[[1, 0]]], [[[3, 0]]]], dtype=np.float32))
        after, _ = method.step(state, given, pair)
        np.testing.assert_allclose(after.theta[:, 0, 0, 0], expected, rtol=1e-6)
        np.testing.assert_array_equal(after.hidden[:, 0, 0, 0], [1, 3])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"exchange": "weights"}, "exchange is 'weights'; it must be 'gradients' or 'models'"),
        ({"combine": "max"}, "combine is 'max'"),
        ({"learner": Newton()}, "leave learner out"),
    ],
)
def test_bad_settings_of_complete_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Complete(**settings)


def test_numpy_settings_keep_float32() -> None:
    method = Gossip(eta=np.float64(0.1), gamma=np.float64(0.3), features=np.int64(D), loss="squared")
    state = method.init(np, (J, S), C)
    for given in rounds(method, 3):
        state, info = method.step(state, given, network())
    assert {leaf.dtype for leaf in (*state[:3], *info[:-1])} == {np.dtype(np.float32)}
    assert (type(method.eta), type(method.bank.features)) == (float, int)


def test_the_radius_follows_the_steps() -> None:
    assert radius(Gossip(eta=2, gamma=0.25, clip=0.5)) == 2.0
    assert radius(Gossip(eta=2, gamma=0.25, clip=0.5, learner=SGD(4))) == 4.0
    assert radius(Gossip()) is None


def test_the_radius_of_pooled_steps_is_theirs() -> None:
    """It falls as they do, and both ends of a link have the same, whatever they have seen."""
    spectrum = (0.5 ** np.arange(8, dtype=np.float32))[None]
    plain = recommended(basis=Landmarks(rank=8), clip=1.0)
    graph = topology.metropolis(topology.path(8))
    index, weights = graph.neighbors()
    links = Neighbors(index, weights.astype(np.float32))
    method = plain.on(graph)
    state = method.init(np, (8,), 1, spectrum)
    found = [float(np.asarray(clipping.radius(method, state, k))) for k in (0, 10, 100, 1000, 10**6)]
    assert (np.diff(found[1:]) < 0).all()
    assert found[0] < found[1]  # while steps count for more and more
    pull, schedule = method.mixing.step / (1 - method.mixing.momentum), method.schedule
    assert schedule is not None
    rng, moves = np.random.default_rng(0), list[float]()
    for t in range(200):
        z, y = rng.normal(size=(8, 1, 8)).astype(np.float32), rng.choice([-1, 1], (8, 1)).astype(np.float32)
        for k in range(int(schedule.rounds(t)), int(schedule.rounds(t + 1))):
            state, _ = method.gossip(state, None, links, k)
        after, _ = method.learn(state, Round(z, y, None))
        length = np.linalg.norm(after.theta - state.theta, axis=(-2, -1)).mean()
        moves.append(length * pull**-0.5 / float(np.asarray(clipping.radius(method, state, k))))
        state = after
    assert 0.25 < np.median(moves[:20]) < 1.5  # slopes are below one
    assert 0.25 < np.median(moves[-100:]) < 1.5


def test_the_radius_stays_where_steps_do() -> None:
    """What forgets has steps that stop getting smaller."""
    spectrum = (0.5 ** np.arange(8, dtype=np.float32))[None]
    changes = {"basis": Landmarks(rank=8), "clip": 1.0, "learner": Pooled(forget=0.99)}
    method = recommended(**changes).on(topology.metropolis(topology.path(8)))
    state = method.init(np, (8,), 1, spectrum)
    late, later = (float(np.asarray(clipping.radius(method, state, k))) for k in (10**4, 10**6))
    assert late == pytest.approx(later, rel=1e-3)
    kept, counted = (values[-1] for values in method.samples_by_round)
    assert kept == pytest.approx(100, rel=1e-3)
    assert counted == pytest.approx(100 * method.reach.knots[-1], rel=1e-3)  # type: ignore[union-attr]


def radius(method: Gossip, round_: int = 0) -> object:
    return clipping.radius(method, method.init(np, (1,), 1), round_)


@pytest.mark.parametrize("kind", [Gossip, Choco])
def test_a_neighbor_far_away_moves_a_node_by_the_radius(kind: type[Gossip]) -> None:
    fresh = {"fresh": True} if kind is Choco else {}
    method = kind(features=D, eta=0.5, gamma=0.25, clip=0.1, quantizer=None, loss="squared", **fresh)
    assert radius(method) == pytest.approx(0.1)
    state = method.init(np, (J, S), C)
    state.hidden[0] = state.theta[0] = 1e15
    z, y, *_ = rounds(method, 1)[0]
    after = method.step(state, Round(0 * z, y, None), network())[1].theta
    moved = np.linalg.norm(after[1:], axis=(-2, -1))
    np.testing.assert_allclose(moved[[0, -1]], 0.25 * 0.1 / 3, rtol=1e-5)  # its two neighbors on the ring
    np.testing.assert_array_equal(moved[1:-1], 0)


def test_one_kernel_is_a_bank() -> None:
    (kernel,) = gaussian(2)
    assert Gossip(kernels=kernel).bank.kernels == (kernel,)


@pytest.mark.parametrize(("weight_rate", "rate"), [(None, 0.1), (0.7, 0.7), (0.0, 0.0)])
def test_weights_have_a_rate_of_their_own_and_see_the_penalty(weight_rate: float | None, rate: float) -> None:
    method = Local(features=D, eta=0.1, regularization=0.5, loss="squared", weight_rate=weight_rate)
    (given,) = rounds(method, 1)
    state = method.init(np, (J, S), C)
    theta = np.random.default_rng(2).normal(size=state.theta.shape).astype(np.float32)
    after, _ = method.step(state._replace(theta=theta), given, network())
    outputs = np.einsum("jspcd,jspd->jspc", theta, given.z)
    losses = ((outputs - given.y[..., None, :]) ** 2).sum(axis=-1) + 0.5 * (theta**2).sum(axis=(-2, -1))
    shifted = -rate * (losses - losses.min(axis=-1, keepdims=True)).clip(max=10)  # a loss without bound has one here
    np.testing.assert_allclose(after.log_weights, shifted - shifted.max(axis=-1, keepdims=True), rtol=1e-4, atol=1e-5)
