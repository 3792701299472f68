import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from omkl import algorithm, config
from omkl.errors import InputError
from omkl.learners import LEARNERS, SGD, AdaGrad, Learner, Newton, NewtonMemory, Sample, Shared, SharedMemory
from omkl.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from omkl.methods import Gossip, Local, Round

RULES: list[Learner] = [
    SGD(0.3), SGD(0.3, decay="sqrt"), AdaGrad(0.5), Newton(), Newton(5.0, forget=0.9), Newton(5.0, block=2), Shared(),
    Shared(forget=0.99),
]  # fmt: skip
LOSSES: list[tuple[Loss, int]] = [
    (Logistic(), 1),
    (SmoothedHinge(), 1),
    (Squared(), 1),
    (Squared(outputs=2), 2),
    (Huber(outputs=2, delta=0.5), 2),
    (Softmax(classes=3), 3),
]


def learn(rule: Learner, samples: Any, loss: Loss, outputs: int = 1, spectrum: Any = None, lam: float = 0.0) -> Any:
    """Return theta ``(1, C, n)`` and memory after samples (z, y), in float64."""
    theta = np.zeros((1, outputs, len(samples[0][0])))
    memory = rule.init(theta, spectrum)
    for z, y in samples:
        z, y = np.asarray(z, float)[None], np.asarray(y, float)
        f = algorithm.predict(theta, np.zeros(1), z).kernel_outputs
        theta, memory = algorithm.learn(theta, memory, f, z, y, loss, lam, rule)
    return theta, memory


def covariance(memory: NewtonMemory) -> np.ndarray:
    """Return S of one block."""
    root = memory.root[..., 0, :, :]
    return np.asarray(root @ root.mT)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("loss", "outputs"), LOSSES, ids=str)
def test_every_rule_learns_every_loss(rule: Learner, loss: Loss, outputs: int, rng: np.random.Generator) -> None:
    truth = rng.normal(size=(outputs, 4))
    inputs = rng.normal(size=(400, 4)) / 2
    f = inputs @ truth.T
    real, sign = isinstance(loss, Squared | Huber), np.sign(f)
    y = f if real else sign if outputs == 1 else np.eye(outputs)[f.argmax(1)]
    theta, _ = learn(rule, list(zip(inputs, y, strict=True)), loss, outputs, np.full((1, 4), 0.25))
    before, after = (loss.value(inputs @ model.T, y).mean() for model in (np.zeros_like(truth), theta[0]))
    assert after < 0.7 * before


def test_sgd_by_hand() -> None:
    samples = [([1.0, 2.0], [1.0])] * 2  # C' = 2 (f - y): -2, then f = 5 eta 2
    theta, memory = learn(SGD(0.05), samples, Squared())
    np.testing.assert_allclose(theta, [[[0.1 + 0.05, 0.2 + 0.1]]])
    assert memory == ()
    theta, memory = learn(SGD(0.05, decay="sqrt"), samples, Squared())
    np.testing.assert_allclose(theta, [[[0.1 + 0.05 / math.sqrt(2), 0.2 + 0.1 / math.sqrt(2)]]])
    assert float(memory[0]) == 2


def test_adagrad_is_its_formula(rng: np.random.Generator) -> None:
    theta, (squares,) = learn(AdaGrad(0.5), [([1.0, 0.0], [1.0])], Squared())
    np.testing.assert_allclose(theta, [[[0.5, 0.0]]])  # the first step is eta, whatever the gradient; zero stays
    np.testing.assert_allclose(squares, [[[4.0, 0.0]]])
    z, y, w, total = rng.normal(size=(30, 3)), np.sign(rng.normal(size=(30, 1))), np.zeros(3), np.zeros(3)
    for one, label in zip(z, y[:, 0], strict=True):
        g = -label / (1 + np.exp(label * (w @ one))) * one + 2 * 0.1 * w
        total += g**2
        w = w - 0.5 * g / np.sqrt(total)
    theta, _ = learn(AdaGrad(0.5), list(zip(z, y, strict=True)), Logistic(), lam=0.1)
    np.testing.assert_allclose(theta[0, 0], w, rtol=1e-12)


def test_newton_by_hand() -> None:
    # s = 2, z.Sz = 3 (1 + 4) = 15, a = 1/31, theta = a 2 S z, S = 3 I - a 2 (Sz)(Sz)^T
    theta, memory = learn(Newton(3.0), [([1.0, 2.0], [1.0])], Squared())
    np.testing.assert_allclose(theta, [[[6 / 31, 12 / 31]]])
    np.testing.assert_allclose(covariance(memory), [[[[3 - 18 / 31, -36 / 31], [-36 / 31, 3 - 72 / 31]]]], rtol=1e-12)
    theta, memory = learn(Newton(3.0, block=1), [([1.0, 2.0], [1.0])], Squared())
    np.testing.assert_allclose(theta, [[[6 / 31, 12 / 31]]])
    np.testing.assert_allclose(memory.root[..., 0, 0] ** 2, [[[3 - 18 / 31, 3 - 72 / 31]]], rtol=1e-12)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("spectrum", [None, [[0.5, 2.0, 1.0, 0.1, 3.0]]])
def test_newton_is_ridge_for_the_squared_loss(outputs: int, spectrum: Any, rng: np.random.Generator) -> None:
    prior, z, y = 4.0, rng.normal(size=(60, 5)), rng.normal(size=(60, outputs))
    theta, memory = learn(
        Newton(prior), list(zip(z, y, strict=True)), Squared(outputs), outputs, spectrum, lam=7.0
    )  # lambda has no say: the prior stands for it
    precision = np.diag(1 / (prior * np.array((spectrum or [np.ones(5)])[0]))) + 2 * z.T @ z
    np.testing.assert_allclose(theta[0], np.linalg.solve(precision, 2 * z.T @ y).T, rtol=1e-9)
    np.testing.assert_allclose(
        covariance(memory), np.broadcast_to(np.linalg.inv(precision), (1, outputs, 5, 5)), rtol=1e-9
    )


def test_newton_forgets(rng: np.random.Generator) -> None:
    """With one coefficient it is ridge with samples weighed by forget to the power of their age."""
    rate, z, y = 0.8, rng.normal(size=(40, 1)), rng.normal(size=(40, 1))
    theta, memory = learn(Newton(2.0, forget=rate), list(zip(z, y, strict=True)), Squared())
    ages = rate ** np.arange(40)[::-1]
    precision = rate**40 / 2 + 2 * np.sum(ages * z[:, 0] ** 2)
    assert theta[0, 0, 0] == pytest.approx(2 * np.sum(ages * z[:, 0] * y[:, 0]) / precision, rel=1e-3)
    assert covariance(memory)[0, 0, 0, 0] == pytest.approx(1 / precision, rel=1e-3)  # the prior bounds the first few


def test_newton_forgets_along_the_sample_alone(rng: np.random.Generator) -> None:
    rate, z = 0.7, rng.normal(size=(30, 4))
    precision, w = np.eye(4) / 5, np.zeros(4)
    for one in z:
        precision -= (1 - rate) * np.outer(one, one) / (one @ np.linalg.solve(precision, one))
        precision += 2 * np.outer(one, one)
        w = w + np.linalg.solve(precision, 2 * one * (1 - one @ w))
    theta, memory = learn(Newton(5.0, forget=rate), [(one, [1.0]) for one in z], Squared())
    np.testing.assert_allclose(covariance(memory)[0, 0], np.linalg.inv(precision), rtol=1e-6)
    np.testing.assert_allclose(theta[0, 0], w, rtol=1e-6)


def test_what_is_not_shown_is_not_forgotten(rng: np.random.Generator) -> None:
    samples = [(np.append(one, [0.0, 0.0]), [1.0]) for one in rng.normal(size=(500, 2))]
    seen = [(rng.normal(size=4), [1.0]) for _ in range(500)]
    _, before = learn(Newton(100.0, forget=0.9), seen, Logistic())
    _, after = learn(Newton(100.0, forget=0.9), [*seen, *samples], Logistic())
    there, later = (np.linalg.inv(covariance(memory)[0, 0]) for memory in (before, after))
    np.testing.assert_allclose(later[2:], there[2:], rtol=1e-6)
    assert not np.allclose(later[:2, :2], there[:2, :2], rtol=0.1)


def test_forgetting_does_not_wind_up() -> None:
    _, memory = learn(Newton(2.0, forget=0.5), [([1.0, 0.0], [1.0])] * 2000, Squared())
    s = covariance(memory)[0, 0]
    assert np.trace(s) <= 4 * (1 + 1e-9)
    assert s[0, 0] > 0


@given(st.integers(0, 10**6), st.sampled_from([None, 1, 2, 3]), st.sampled_from([1.0, 0.99]))
def test_a_step_of_newton_shrinks_s_and_keeps_it_positive(seed: int, block: int | None, forget: float) -> None:
    rng = np.random.default_rng(seed)
    samples = [(rng.normal(size=6) * 10.0 ** rng.uniform(-3, 3), [1.0]) for _ in range(8)]
    _, memory = learn(Newton(100.0, forget, block), samples, Logistic())
    eigenvalues = np.linalg.eigvalsh(memory.root @ memory.root.mT)
    assert (eigenvalues > 0).all()
    assert eigenvalues.sum() <= 600 * (1 + 1e-9)


def scan(rule: Newton, steps: int, repeats: int) -> tuple[np.ndarray, Any]:
    """Return theta and memory after so many samples, again and again, in float32."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(steps, 1, 6)).astype(np.float32) * np.array([1, 1, 1, 1e-2, 1e-4, 0], np.float32)
    y = np.sign(z[:, 0, :1] + 0.3 * rng.normal(size=(steps, 1))).astype(np.float32)

    def one(carry: Any, sample: Any) -> Any:
        theta, memory = carry
        z, y = sample
        f = algorithm.predict(theta, jnp.zeros(1), z).kernel_outputs
        return algorithm.learn(theta, memory, f, z, y, Logistic(), 0.0, rule), None

    theta = jnp.zeros((1, 1, 6))
    carry = (theta, rule.init(theta))
    run = jax.jit(lambda carry: jax.lax.scan(one, carry, (z, y), unroll=4)[0])
    for _ in range(repeats):
        carry = run(carry)
    return np.asarray(carry[0]), jax.tree.map(np.asarray, carry[1])


@pytest.mark.parametrize(
    ("rule", "repeats"),
    [
        (Newton(100.0), 1),
        (Newton(100.0, forget=0.999), 1),
        (Newton(1e4), 10),
        (Newton(1e4, forget=0.99), 10),
    ],
    ids=str,
)
def test_s_stays_positive_in_float32(rule: Newton, repeats: int) -> None:
    """A hundred thousand samples, or a million, of directions that are strong, weak and absent."""
    theta, memory = scan(rule, 100_000, repeats)
    s = covariance(memory).astype(np.float64)[0, 0]
    assert np.isfinite(theta).all()
    assert np.abs(theta).max() < 1e3
    np.testing.assert_allclose(s, s.T, rtol=1e-5, atol=1e-6 * np.abs(s).max())
    assert np.linalg.eigvalsh(s).min() > 0
    assert np.trace(s) <= 6 * rule.prior * 1.001
    assert s[5, 5] == pytest.approx(rule.prior, rel=1e-2) or rule.forget < 1  # no sample shows it
    assert s[0, 0] < (0.05 if rule.forget == 1 else 100 * (1 - rule.forget))  # what a sample of least curvature shows


def test_shared_by_hand() -> None:
    # t = 1, the squared loss curves 8 times as much as the logistic: variance (2, 1), S = (2/(1+.16), 1/(1+.08))
    rule, spectrum = Shared(prior=2.0, c=0.01), np.array([[1.0, 0.5]])
    theta, memory = learn(rule, [([1.0, 2.0], [1.0])], Squared(), 1, spectrum)
    s = np.array([2 / 1.16, 1 / 1.08])
    np.testing.assert_allclose(theta[0, 0], 2 * s * [1, 2] / (1 + 2 * (s @ [1, 4])), rtol=1e-6)
    assert float(memory.count) == 1


@pytest.mark.parametrize("prior", [1e-3, 1.0, 100.0, 1e5])
@pytest.mark.parametrize("f", [-30.0, -3.0, 0.0, 4.0])
def test_shared_solves_the_proximal_step(prior: float, f: float) -> None:
    """The new output u has u - f + q C'(u) = 0, for any margin: no step overshoots."""
    rule, spectrum, z = Shared(prior, c=1e-9), np.array([[1.0, 0.5]]), np.array([[1.0, 2.0]])
    theta = np.array([[[f, 0.0]]])
    outputs = theta @ z[0]
    slope = Logistic().derivative(outputs, np.array([1.0]))
    sample = Sample(outputs, np.array([[1.0]]), Logistic())
    after, _ = rule.update(theta, rule.init(theta, spectrum), slope[..., None] * z[:, None, :], z, sample)
    q, u = prior * (1 + 0.5 * 4), float(after[0, 0] @ z[0])
    exact = brentq(lambda u: u - f - q / (1 + math.exp(min(u, 700.0))), f - 1, f + q + 1)
    assert u - f == pytest.approx(exact - f, rel=0.01, abs=1e-9)


def test_shared_is_newton_where_the_curvature_is_diagonal(rng: np.random.Generator) -> None:
    """After whole cycles of samples along the axes, E z z^T = I, so that c t is what Newton has added up."""
    n, prior, spectrum = 4, 3.0, np.array([[1.0, 0.5, 0.2, 0.1]])
    axes = [(math.sqrt(n) * row, [rng.normal()]) for row in np.eye(n)] * 5
    newton, shared = Newton(prior), Shared(prior, c=0.25)  # in units of the logistic loss: 2
    theta, memory = learn(newton, axes, Squared(), 1, spectrum)
    z, y = rng.normal(size=(1, n)), np.array([rng.normal()])
    sample = Sample(algorithm.predict(theta, np.zeros(1), z).kernel_outputs, y[None], Squared())
    gradient = sample.derivative(sample.outputs)[..., None] * z[..., None, :]
    local, _ = newton.update(theta, memory, gradient, z, sample)
    common, _ = shared.update(theta, SharedMemory(np.array(19.0), spectrum), gradient, z, sample)
    np.testing.assert_allclose(common, local, rtol=1e-6)


def test_shared_never_moves_what_the_basis_does_not_have() -> None:
    theta, _ = learn(Shared(), [([1.0, 2.0], [1.0])] * 3, Logistic(), 1, np.array([[1.0, 0.0]]))
    assert theta[0, 0, 0] > 0
    assert theta[0, 0, 1] == 0


def test_nodes_have_counts_of_their_own() -> None:
    rule, spectrum = Shared(), np.ones((1, 2), np.float32)
    theta = np.zeros((2, 1, 1, 2), np.float32)
    memory = rule.init(theta, spectrum)
    assert memory.count.shape == (2,)
    older = memory._replace(count=np.array([0, 99], np.float32))
    gradient = np.ones_like(theta)
    z, outputs = np.ones((2, 1, 2), np.float32), np.zeros((2, 1, 1), np.float32)
    moved, after = rule.update(theta, older, gradient, z, Sample(outputs, outputs - 1, Logistic()))
    np.testing.assert_array_equal(after.count, [1, 100])
    assert abs(moved[1]).max() < 0.5 * abs(moved[0]).max()


def test_shared_needs_a_spectrum() -> None:
    with pytest.raises(InputError, match="the features have no spectrum; the shared learner needs a calibrated basis"):
        Gossip(learner=Shared()).init(np, (3,), 1)
    state = Gossip(learner=Shared(), features=4).init(np, (3,), 1, np.ones((3, 8)))
    assert isinstance(state.memory, SharedMemory)
    assert state.memory.spectrum.shape == (3, 3, 8)
    alone = Local(learner=Shared(), features=4).init(np, (3,), 1, np.ones((3, 8))).memory
    assert isinstance(alone, SharedMemory)
    assert alone.count.shape == (3,)


def test_a_network_of_newtons_learns_faster(rng: np.random.Generator) -> None:
    def loss(rule: Learner) -> float:
        method = Local(learner=rule, features=3)
        state, losses, draw = method.init(np, (4,), 1), [], np.random.default_rng(1)
        for _ in range(60):
            z = draw.normal(size=(4, 3, 6)).astype(np.float32) / 3
            y = np.sign(z[:, 0, :1])
            state, info = method.step(state, Round(z, y, None), None)  # type: ignore[arg-type]
            losses.append(info.loss.mean())
        return float(np.mean(losses))

    assert loss(Newton(10.0)) < 0.9 * loss(SGD(0.1))


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ({"name": "sgd", "eta": 0.5, "decay": "sqrt"}, SGD(0.5, decay="sqrt")),
        ({"name": "adagrad", "eta": 2}, AdaGrad(2.0)),
        ({"name": "newton", "prior": 30, "forget": 0.99, "block": 20}, Newton(30.0, forget=0.99, block=20)),
        ({"name": "shared", "c": 0.05}, Shared(c=0.05)),
        ("shared", Shared()),
    ],
)
def test_rules_by_name(table: Any, rule: Learner) -> None:
    spec = config.experiment({"data": "banana", "nodes": 3, "method": {"learner": table}})
    assert isinstance(spec.method, Gossip)
    assert spec.method.learner == rule
    assert LEARNERS[rule.name] is type(rule)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: SGD(0), "eta is 0.0; a learning rate must be positive and finite; the paper uses 0.01"),
        (
            lambda: SGD(1, decay="linear"),  # type: ignore[arg-type]
            "decay is 'linear'; it must be 'none' or 'sqrt'",
        ),
        (lambda: AdaGrad(-1), "eta is -1.0; a learning rate must be positive"),
        (lambda: Newton(0), "prior is 0.0; it must be positive and finite; try 10"),
        (lambda: Newton(forget=1.1), "forget is 1.1; it must lie in"),
        (lambda: Newton(block=0), "block is 0; it must be a whole number from 1 on"),
        (lambda: Newton(block=3).init(np.zeros((1, 1, 4))), "block is 3; a model has 4 coefficients; use a divisor"),
        (lambda: Shared(prior=math.inf), "prior is inf; it must be positive and finite; try 100"),
        (lambda: Shared(c=0), "c is 0.0; it must be positive"),
    ],
)
def test_bad_settings_are_refused(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        make()


def test_shared_forgets_down_to_a_count() -> None:
    spectrum, rate = np.array([[1.0, 1.0]]), 0.9
    _, memory = learn(Shared(forget=rate), [([1.0, 0.0], [1.0])] * 3, Squared(), 1, spectrum)
    assert float(memory.count) == pytest.approx(1 + rate + rate**2)
    _, memory = learn(Shared(forget=rate), [([1.0, 0.0], [1.0])] * 400, Squared(), 1, spectrum)
    assert float(memory.count) == pytest.approx(1 / (1 - rate))
    with pytest.raises(InputError, match=r"forget is 1\.5"):
        Shared(forget=1.5)
