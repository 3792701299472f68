import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl import algorithm, features, topology
from omkl.algorithm import State
from omkl.features import Features, gaussian
from omkl.learners import SGD
from omkl.losses import Logistic, Loss, Softmax, Squared
from omkl.methods import Gossip, Local, Neighbors, Round
from omkl.model import Model
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer, restore
from tests.conftest import Library


def test_every_phase_on_every_library(library: Library, rng: np.random.Generator) -> None:
    shape = (5, 3, 1, 8)
    theta, hidden = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    copies = rng.normal(size=(5, 2, 3, 1, 8)).astype(np.float32)
    weights = rng.uniform(size=(5, 2)).astype(np.float32)
    log_weights = rng.normal(size=(5, 3)).astype(np.float32)
    z = rng.normal(size=(5, 3, 8)).astype(np.float32)
    y = np.sign(rng.normal(size=(5, 1))).astype(np.float32)
    uniforms = rng.uniform(size=shape).astype(np.float32)
    outputs = algorithm.predict(theta, log_weights, z).kernel_outputs
    loss, learner, quantizer = Logistic(), SGD(0.1), QSGD(bits=4)

    def state(theta: object) -> State:
        return algorithm.init(theta, learner)

    def mix(*args: object) -> object:
        return algorithm.mix(*args, gamma=0.3)  # type: ignore[misc, arg-type]

    def clip(hidden: object, copies: object) -> object:
        return algorithm.clipped(hidden[:, None, ...], copies, 1.0)  # type: ignore[index]

    def emit(theta: object, hidden: object, uniforms: object) -> object:
        return algorithm.emit(theta, hidden, quantizer, uniforms)

    def weigh(log_weights: object, *args: object) -> object:
        losses = algorithm.kernel_losses(*args, loss, 0.01)  # type: ignore[call-arg, arg-type]
        return algorithm.weigh(log_weights, losses, 0.5)

    def learn(theta: object, *args: object) -> object:
        return algorithm.learn(theta, (), *args, loss, 0.01, learner)  # type: ignore[call-arg, arg-type]

    message = algorithm.emit(theta, hidden, quantizer, uniforms)
    for function, args in (
        (state, (theta,)),
        (clip, (hidden, copies)),
        (mix, (theta, hidden, copies, weights)),
        (emit, (theta, hidden, uniforms)),
        (algorithm.absorb, (hidden, message)),
        (algorithm.predict, (theta, log_weights, z)),
        (weigh, (log_weights, theta, outputs, y)),
        (learn, (theta, outputs, z, y)),
        (algorithm.normalize, (log_weights,)),
    ):
        here, there = function(*args), library.call(function, *args)
        for a, b in zip(_leaves(here), _leaves(there), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _leaves(tree: object) -> list[np.ndarray]:
    if isinstance(tree, tuple):
        return [leaf for part in tree for leaf in _leaves(part)]
    return [np.asarray(tree)]


def test_a_copy_is_drawn_near_kernel_by_kernel() -> None:
    hidden = np.array([[[1, 1]], [[0, 0]], [[2, 2]]], dtype=np.float32)
    copies = np.array([[[[4, 5]], [[3, 4]], [[2, 2]]], [[[1, 3]], [[0, 5]], [[-6e37, 8e37]]]], dtype=np.float32)
    near = algorithm.clipped(hidden, copies, 2.5)
    expected = np.array([[[[2.5, 3]], [[1.5, 2]], [[2, 2]]], [[[1, 3]], [[0, 2.5]], [[0.5, 4]]]])
    np.testing.assert_allclose(near, expected, rtol=1e-6)
    np.testing.assert_array_equal(algorithm.clipped(hidden, copies, np.inf), copies)
    assert algorithm.clipped(hidden, copies, None) is copies


@given(
    st.integers(0, 2**32 - 1),
    st.floats(1e-6, 1e6),
    st.lists(st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e3, 1e18, 1e30, 3.4e38]), min_size=3, max_size=3),
)
def test_a_neighbor_moves_a_node_by_so_much_at_most(seed: int, radius: float, scales: list[float]) -> None:
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(2, 3, 5)).astype(np.float32)
    factors = np.array(scales, dtype=np.float32)[:, None, None, None]
    copies = factors * rng.uniform(-1, 1, size=(3, 2, 3, 5)).astype(np.float32)
    near = algorithm.clipped(hidden, copies, radius)
    assert near.dtype == np.float32
    assert np.isfinite(algorithm.mix(hidden, hidden, near, np.full(3, 1 / 3, dtype=np.float32), 1.0)).all()
    pull, apart = (one.astype(np.float64) - hidden for one in (near, copies))
    length, distance = (np.linalg.norm(one, axis=(-2, -1)) for one in (pull, apart))
    rounding = 1e-5 * (radius + np.linalg.norm(hidden, axis=(-2, -1)))
    assert (length <= radius + rounding).all()
    np.testing.assert_array_equal(near[distance <= 0.999 * radius], copies[distance <= 0.999 * radius])
    far = distance > 1.001 * radius
    assert (np.abs(length - radius) <= rounding)[far].all()
    along = (pull * (apart / np.maximum(distance, 1e-30)[..., None, None])).sum(axis=(-2, -1))
    assert (np.abs(along - length) <= rounding)[far].all()


@pytest.mark.parametrize("quantizer", [None, "nearest"])
def test_two_nodes_by_hand(quantizer: str | None) -> None:
    # One kernel, z = (1, 0), squared loss, y = 1 and 1/2; w_12 = gamma = 1/2, eta = lambda = 1/4. Every number is a sum
    # of powers of two, so all digits must agree; a message has one entry of few bits, so the quantizer changes none.
    method = Gossip(
        kernels=gaussian(1), features=1, eta=0.25, gamma=0.5, regularization=0.25, loss="squared", quantizer=quantizer
    )
    network = Neighbors(np.array([[1], [0]]), np.array([[0.5], [0.5]], dtype=np.float32))
    given_round = Round(np.array([[[1, 0]]] * 2, dtype=np.float32), np.array([[1], [0.5]], dtype=np.float32), None)
    state = method.init(np, (2,), 1)
    for loss, hidden, theta in (
        # theta = 0, nothing to send; slopes 2(0 - y) = -2, -1
        ([1.0, 0.25], [0.0, 0.0], [0.5, 0.25]),
        # no pull, for h was zero; theta is sent whole; gradients -1 + 1/4 and -1/2 + 1/8
        ([0.25, 0.0625], [0.5, 0.25], [0.6875, 0.34375]),
        # the pull is 1/4 (1/4 - 1/2) = -1/16: theta = 0.625, 0.40625; gradients -0.4375 and 0.015625
        ([0.140625, 0.0087890625], [0.625, 0.40625], [0.734375, 0.40234375]),
    ):
        state, info = method.step(state, given_round, network)
        np.testing.assert_array_equal(info.loss, loss)
        np.testing.assert_array_equal(state.hidden[:, 0, 0], [[h, 0] for h in hidden])
        np.testing.assert_array_equal(state.theta[:, 0, 0], [[t, 0] for t in theta])


@given(
    nodes=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    quantizer=st.sampled_from([Exact(), QSGD(bits=3), QSGD(bits=1, rescale=True), Nearest(), Nearest(1, block=4)]),
    weights=st.sampled_from(sorted(topology.WEIGHTS)),
    gamma=st.floats(0.01, 1),
)
def test_gossip_preserves_the_mean(nodes: int, seed: int, quantizer: Quantizer, weights: str, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    network = _random_network(nodes, weights, rng)
    theta = rng.normal(size=(nodes, 2, 1, 8)).astype(np.float32)
    hidden = np.zeros_like(theta)
    before = theta.mean(axis=0, dtype=np.float64)
    for _ in range(5):
        theta = network.mix(theta, hidden, gamma)
        uniforms = rng.uniform(size=theta.shape).astype(np.float32)
        hidden = algorithm.absorb(hidden, algorithm.emit(theta, hidden, quantizer, uniforms))
        np.testing.assert_allclose(
            theta.mean(axis=0, dtype=np.float64), before, atol=1e-5 * max(1, np.abs(hidden).max())
        )


def _random_network(nodes: int, weights: str, rng: np.random.Generator) -> Neighbors:
    adjacency = np.triu(rng.uniform(size=(nodes, nodes)) < 0.4, 1)
    adjacency[np.arange(nodes - 1), np.arange(1, nodes)] = True  # a path through all keeps it connected
    built = topology.build((adjacency | adjacency.T).astype(float), weights=weights)
    index, w = built.neighbors()
    return Neighbors(index, w.astype(np.float32))


def test_consensus_is_reached_without_learning(rng: np.random.Generator) -> None:
    network = _random_network(8, "metropolis", rng)
    theta = rng.normal(size=(8, 3, 1, 40)).astype(np.float32)
    mean, hidden, start = theta.mean(axis=0), np.zeros_like(theta), theta.std(axis=0).max()
    for _ in range(600):
        theta = network.mix(theta, hidden, 0.3)
        hidden = algorithm.absorb(hidden, algorithm.emit(theta, hidden, Nearest(), None))
    assert np.abs(theta - mean).max() < 1e-4 * start
    assert np.abs(hidden - theta).max() < 1e-4 * start


def test_weights_are_hedge(rng: np.random.Generator) -> None:
    theta = np.zeros((3, 1, 2), dtype=np.float32)
    outputs = np.array([[2.0], [0.0], [-2.0]], dtype=np.float32)
    y, loss = np.array([1.0], dtype=np.float32), Logistic()
    log_weights = np.zeros(3, dtype=np.float32)
    for _ in range(5):
        log_weights = algorithm.weigh(log_weights, algorithm.kernel_losses(theta, outputs, y, loss, 0.1), rate=0.7)
    losses = np.log1p(np.exp(-outputs[:, 0].astype(np.float64)))
    expected = np.exp(-0.7 * 5 * losses)
    np.testing.assert_allclose(algorithm.normalize(log_weights), expected / expected.sum(), rtol=1e-5)
    assert log_weights.max() == 0


def test_weights_survive_a_million_losses() -> None:
    log_weights = np.array([0.0, -3e6, -1e9], dtype=np.float32)
    np.testing.assert_array_equal(algorithm.normalize(log_weights), [1, 0, 0])
    np.testing.assert_array_equal(algorithm.normalize(np.full(2, -1e30, dtype=np.float32)), [0.5, 0.5])


@pytest.mark.parametrize("order", [False, True])
def test_the_score_comes_before_the_weights_see_the_sample(order: bool, rng: np.random.Generator) -> None:
    method = Gossip(features=4, eta=0.5, weigh_first=order, quantizer=None)
    network = Neighbors(np.array([[0]]), np.zeros((1, 1), dtype=np.float32))
    theta = rng.normal(size=(1, 3, 1, 8)).astype(np.float32)
    state = algorithm.init(theta, SGD(0.5))
    z, y = rng.normal(size=(1, 3, 8)).astype(np.float32), np.ones((1, 1), dtype=np.float32)
    after, info = method.step(state, Round(z, y, None), network)
    used = after.log_weights if order else state.log_weights
    np.testing.assert_array_equal(info.output, algorithm.predict(theta, used, z).output)


def _fit(loss: Loss, X: np.ndarray, y: np.ndarray, eta: float) -> list[Model]:
    method = Gossip(
        kernels=gaussian(1, 2), features=30, eta=eta, gamma=0.5, regularization=0, loss=loss, quantizer=Nearest()
    )
    V = features.draw(method.bank.kernels, 30, X.shape[-1], 0)
    ring = topology.build("ring", X.shape[1]).neighbors()
    network = Neighbors(ring[0], ring[1].astype(np.float32))
    state = method.init(np, (X.shape[1],), y.shape[-1])
    for x, target in zip(X, y, strict=True):
        state, _ = method.step(state, Round(features.transform(x, Features(V)), target, None), network)
    return [Model(V, theta, log_weights, loss) for theta, log_weights in zip(*method.models(state), strict=True)]


def test_three_classes(rng: np.random.Generator) -> None:
    labels = rng.integers(3, size=(300, 4))
    centers = np.array([[0, 2], [2, -1], [-2, -1]])
    X = (centers[labels] + 0.5 * rng.normal(size=(300, 4, 2))).astype(np.float32)
    loss = Softmax(3)
    for model in _fit(loss, X, loss.encode(labels), eta=0.5):
        assert model.theta.shape == (2, 3, 60)
        assert (model.predict(X.reshape(-1, 2)) == labels.reshape(-1)).mean() > 0.95


def test_two_outputs(rng: np.random.Generator) -> None:
    X = rng.normal(size=(600, 4, 2)).astype(np.float32)
    y = np.stack([np.sin(X[..., 0]), np.cos(X[..., 1])], axis=-1)
    loss = Squared(outputs=2)
    for model in _fit(loss, X, loss.encode(y), eta=0.3):
        error = ((model.predict(X[-100:].reshape(-1, 2)) - y[-100:].reshape(-1, 2)) ** 2).mean(axis=0)
        assert (error < 0.1 * y.reshape(-1, 2).var(axis=0)).all()


def test_one_node_is_the_local_learner(rng: np.random.Generator) -> None:
    alone = Neighbors(np.array([[0]]), np.zeros((1, 1), dtype=np.float32))
    gossip, local = Gossip(features=10, eta=0.3, quantizer="nearest"), Local(features=10, eta=0.3)
    a, b = gossip.init(np, (1,), 1), local.init(np, (1,), 1)
    for _ in range(50):
        round_ = Round(rng.normal(size=(1, 3, 20)).astype(np.float32), np.ones((1, 1), dtype=np.float32), None)
        (a, info_a), (b, info_b) = gossip.step(a, round_, alone), local.step(b, round_, alone)
    np.testing.assert_array_equal(a.theta, b.theta)
    np.testing.assert_array_equal(info_a.loss, info_b.loss)


def test_absorb_is_the_owners(rng: np.random.Generator) -> None:
    hidden = rng.normal(size=(3, 1, 8)).astype(np.float32)
    message = algorithm.emit(hidden + 1, hidden, Nearest(), None)
    np.testing.assert_array_equal(algorithm.absorb(hidden, message), hidden + restore(message))
