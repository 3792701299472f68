"""Every part of the compiled text computes what its statement over arrays does, in float32, to the tolerances given."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import algorithm, calibration, compressors, features, noise, quantizers
from omkl.features import Features, gaussian
from omkl.landmarks import Landmarks
from omkl.methods import Bank, Gossip
from omkl.quantizers import Message
from omkl.reach import Hearing, Reach
from omkl.wire import message_bytes
from omkl.wire.coded import ELEMENTS

numba = pytest.importorskip("numba")
NAMES = (
    "arithmetic",
    "mixing",
    "plan",
    "rounds",
    "sizes",
    "features",
    "learners",
    "losses",
    "quantizers",
    "jit",
    "lending",
)
PARTS = [importlib.import_module(f"omkl.compiled.{name}") for name in (*NAMES, "mapping")]
arithmetic, mixing, plan, rounds, sizes, described, steps, values, levels, jit, lending, mapping = PARTS

f32 = np.float32
ULP = 2.0**-23
LOSSES: list[Any] = [omkl.Logistic(), omkl.SmoothedHinge(), omkl.Squared(), omkl.Huber(delta=0.7), omkl.Softmax(3)]
QUANTIZERS: list[Any] = [
    omkl.QSGD(bits=3), omkl.QSGD(bits=2, block=8), omkl.Nearest(2.5), omkl.Nearest(1.5, block=8), quantizers.Exact(),
    compressors.Sign(),
]  # fmt: skip
HARD = {
    "zeros": np.zeros(24), "one": np.eye(24)[5], "huge": 1e30 * np.sin(np.arange(24.0)), "tiny": np.full(24, 1e-30),
    "smooth": np.sin(np.arange(24.0)), "far apart": np.logspace(-12, 6, 24),
}  # fmt: skip


@cache
def called(function: Any) -> Any:
    """Return an inner function as one that Python calls; only entries find the code of what they call."""

    @numba.njit(**jit._ENTRY)  # type: ignore[untyped-decorator]
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def rule(loss: Any, learner: Any, n: int, outputs: int, spectrum: Any = None) -> Any:
    method = Gossip(loss=loss, learner=learner, kernels=gaussian(1), features=n // 2, regularization=1e-3)
    return plan.rule(method, spectrum)


def targets(loss: Any, outputs: int, rng: np.random.Generator) -> Any:
    if isinstance(loss, omkl.Softmax):
        return np.eye(outputs, dtype=f32)[rng.integers(outputs)]
    y = rng.normal(size=outputs) if hasattr(loss, "outputs") else rng.choice([-1.0, 1.0], size=outputs)
    return y.astype(f32)


# --- arithmetic


def test_elementary_functions() -> None:
    x = -np.logspace(-6, 1.9, 500).astype(f32)
    exp, log1p = called(arithmetic.exp), called(arithmetic.log1p)
    np.testing.assert_allclose([exp(f32(one)) for one in x], np.exp(x.astype(float)), rtol=4 * ULP)
    assert exp(f32(0)) == 1
    assert 0 < exp(f32(-1e30)) < 1e-37
    e = np.linspace(0, 1, 300, dtype=f32)
    np.testing.assert_allclose([log1p(one) for one in e], np.log1p(e.astype(float)), rtol=4 * ULP)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 243])
def test_sums_of_vectors(count: int, rng: np.random.Generator) -> None:
    one, other = rng.normal(size=(2, count)).astype(f32)
    size = np.abs(one.astype(float)) @ np.abs(other)
    assert abs(called(arithmetic.dot)(one, other) - one.astype(float) @ other) < 4 * ULP * size
    assert abs(called(arithmetic.total)(one) - one.sum(dtype=float)) < 4 * ULP * np.abs(one).sum()
    assert called(arithmetic.largest)(one) == np.abs(one).max()
    assert called(arithmetic.highest)(one) == one.max()
    sums = other.copy()
    called(arithmetic.add)(sums, f32(0.5), one)
    np.testing.assert_allclose(sums, other + 0.5 * one, rtol=2 * ULP, atol=ULP)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 40])
def test_what_is_not_finite_is_seen(bad: float, place: int) -> None:
    vector = np.ones(41, f32)
    is_finite = called(mixing.is_finite)
    assert is_finite(vector)
    vector[place] = bad
    assert not is_finite(vector)


@pytest.mark.parametrize("count", [1, 2, 9, 120])
def test_dither_is_that_of_noise(count: int) -> None:
    key, uniforms = noise.fold(noise.key(7, "quantizer"), 3), np.empty(count, f32)
    called(arithmetic.dither)(np.array([key.low, key.high], np.uint32).reshape(2), 12, uniforms)
    np.testing.assert_array_equal(uniforms, noise.dither(noise.fold(key, 12), (count,)).astype(f32))


# --- features


@pytest.mark.parametrize("size", [1.0, 100.0, 8000.0, 1e5])
def test_waves(size: float, rng: np.random.Generator) -> None:
    angles = (size * rng.uniform(-1, 1, size=33)).astype(f32)
    z = np.empty(66, f32)
    described.waves(angles[None, None], z[None, None])
    np.testing.assert_allclose(z, features.waves(angles.astype(float)), atol=1e-6)
    assert np.abs(z).max() > 0.1


@pytest.mark.parametrize("basis", [False, True])
def test_features_of_frequencies(basis: bool, rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 5)).astype(f32)
    bank = Bank(kernels=gaussian(1, 3), features=16, basis=calibration.Basis(12, 40) if basis else None)
    made = bank.draw(5, 0, X)
    expected = features.transform(
        X.astype(float), Features(*(None if part is None else part.astype(float) for part in made))
    )
    mapped = mapping.Mapping(made)
    np.testing.assert_allclose(mapped.rows(X), expected, atol=2e-5)
    np.testing.assert_allclose(mapped.one(X[3]), expected[3], atol=2e-5)
    np.testing.assert_array_equal(mapped.each(X)[3], mapped.one(X[3]))


@pytest.mark.parametrize("widths", [(0.35, 0.7, 1.4), (0.5, 1.1, 5.0), (1.0,)])
@pytest.mark.parametrize("relevance", [False, True])
def test_features_of_landmarks(widths: tuple[float, ...], relevance: bool, rng: np.random.Generator) -> None:
    X = (rng.normal(size=(61, 5)) * [1, 3, 0.5, 2, 1] + [9, 0, -2, 0, 0]).astype(f32)
    made = Bank(kernels=gaussian(*widths), basis=Landmarks(30, 61), sigma="median").draw(5, 0, X)
    if relevance:
        made = made._replace(relevance=np.array([1, 0.5, 1, 0.9, 0.8], f32))
    X[4, 2], X[5] = 1e6, X[6]
    expected = features.transform(
        X.astype(float), Features(*(None if part is None else part.astype(float) for part in made))
    )
    mapped = mapping.Mapping(made)
    # Similarities are right to a few units; the last directions of the basis are those times a large number.
    scale = np.abs(expected).max()
    np.testing.assert_allclose(mapped.each(X), expected, atol=2e-4 * scale)
    np.testing.assert_allclose(mapped.rows(X), expected, atol=2e-3 * scale)
    for count in (1, 7, 8, 9):
        cut = [mapped.each(X[k : k + count]) for k in range(0, 61, count)]
        np.testing.assert_array_equal(np.concatenate(cut), mapped.each(X))


def test_similarities_of_what_is_far_are_nothing() -> None:
    squares = np.array([[0.0, -1e-6, 1.0, 1e4, 1e30]], f32)
    described.compare(squares, np.array([1], f32), np.array([-0.5], f32), True)
    np.testing.assert_allclose(squares, [[1, 1, np.exp(-0.5), 0, 0]], rtol=4 * ULP)


# --- losses


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0, 1e4])
def test_losses_and_their_derivatives(loss: Any, size: float, rng: np.random.Generator) -> None:
    kind, delta = values.LOSSES.index(type(loss)), f32(getattr(loss, "delta", 0))
    value, derivative, curvatures = map(called, (values.value, values.derivative, values.curvatures))
    for _ in range(20):
        outputs = 3 if isinstance(loss, omkl.Softmax) else 2 if hasattr(loss, "outputs") else 1
        y, f = targets(loss, outputs, rng), (size * rng.normal(size=outputs)).astype(f32)
        wide, target = f.astype(float), y.astype(float)
        scale = max(1.0, size) ** (2 if isinstance(loss, omkl.Squared) else 1)
        np.testing.assert_allclose(value(kind, delta, f, y), loss.value(wide, target), rtol=1e-5, atol=2e-6 * scale)
        slope, bent = np.empty((2, outputs), f32)
        derivative(kind, delta, f, y, slope)
        np.testing.assert_allclose(slope, loss.derivative(wide, target), rtol=1e-5, atol=1e-6)
        curvatures(kind, delta, f, y, bent)
        np.testing.assert_allclose(bent, np.diagonal(loss.curvature(wide, target)), rtol=1e-4, atol=1e-6)
        derivative(kind, delta, f, y, f)  # in its own place
        np.testing.assert_array_equal(f, slope)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
def test_scores(loss: Any, rng: np.random.Generator) -> None:
    score = called(values.score)
    outputs = 3 if isinstance(loss, omkl.Softmax) else 1
    for size in (0, 1, 1, 1, 1, 1, 1):
        y, f = targets(loss, outputs, rng), (size * rng.normal(size=outputs)).astype(f32)
        np.testing.assert_equal(float(score(values.LOSSES.index(type(loss)), f, y)), float(loss.score(f, y)))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
def test_a_loss_of_what_is_no_number_is_none(loss: Any) -> None:
    outputs = 3 if isinstance(loss, omkl.Softmax) else 1
    f, y = np.full(outputs, np.nan, f32), np.ones(outputs, f32)
    assert not np.isfinite(called(values.value)(values.LOSSES.index(type(loss)), f32(1), f, y))


# --- mixing


@pytest.mark.parametrize("radius", [0.0, 0.3, 1e3])
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("neighbors", [0, 1, 3])
def test_mixing(radius: float, name: str, neighbors: int, rng: np.random.Generator) -> None:
    hidden = rng.normal(size=24).astype(f32)
    others = (HARD[name] + rng.normal(size=(5, 24)) * (name == "smooth")).astype(f32)
    ids, weights = np.array([4, 0, 2])[:neighbors], np.array([0.3, 0.2, 0.1], f32)[:neighbors]
    pulls = np.full(24, 9, f32)
    called(mixing.pull)(hidden, others, ids, weights, f32(radius), 2, pulls)
    shape, bound = (2, 1, 12), radius or None
    copies = algorithm.clipped(hidden.reshape(shape), others[ids].reshape(neighbors, *shape), bound)
    expected = algorithm.mix(np.zeros(shape), hidden.reshape(shape), copies.astype(float), weights, 1.0)
    size = 1e30 if name == "huge" and not radius else 1e6 if name == "far apart" and not radius else max(radius, 1)
    np.testing.assert_allclose(pulls, expected.ravel(), rtol=2e-6, atol=2e-6 * size)


def test_a_neighbor_that_says_the_same_does_not_pull() -> None:
    hidden, pulls = np.ones(6, f32), np.empty(6, f32)
    for radius in (0.0, 0.5):
        called(mixing.pull)(hidden, hidden[None], np.zeros(1, np.int64), np.ones(1, f32), f32(radius), 1, pulls)
        np.testing.assert_array_equal(pulls, 0)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_moving(momentum: float, rng: np.random.Generator) -> None:
    own, velocity, pulls = rng.normal(size=(3, 24)).astype(f32)
    after, speed = algorithm.heavy_ball(own, velocity, momentum, lambda start: start + f32(0.2) * pulls)
    called(mixing.move)(own, velocity, pulls, f32(0.2), f32(momentum))
    np.testing.assert_allclose(own, after, rtol=4 * ULP, atol=4 * ULP)
    if momentum:
        np.testing.assert_allclose(velocity, speed, rtol=4 * ULP, atol=4 * ULP)


# --- what is sent


def said(quantizer: Any, vectors: Any, uniforms: Any) -> Message:
    """Return the message of vectors ``(rows, n)`` by the compiled text."""
    rows, n = vectors.shape
    method = Gossip(quantizer=quantizer, kernels=gaussian(*range(1, rows + 1)), features=n // 2)
    numbers = plan.numbers(method, 1, None)
    found, step = np.empty(rows * n, f32), []
    for k in range(0, rows * n, numbers.block):
        part = slice(k, k + numbers.block)
        given = vectors.ravel()[part], uniforms.ravel()[part], found[part]
        step.append(called(levels.quantize)(numbers.quantizer, numbers.most, numbers.scale, *given))
    return Message(found.reshape(rows, 1, n), np.array(step, f32).reshape(rows, 1, -1))


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
def test_levels_and_steps(quantizer: Any, rng: np.random.Generator) -> None:
    vectors = np.stack([*HARD.values(), rng.normal(size=24)]).astype(f32)
    uniforms = noise.dither(noise.key(3, "quantizer"), vectors.shape).astype(f32)
    with np.errstate(over="ignore", invalid="ignore"):  # squares of 1e30 are no float32
        expected = quantizer.quantize(vectors[:, None], uniforms[:, None])
        got = said(quantizer, vectors, uniforms)
    np.testing.assert_array_equal(np.isfinite(got.step), np.isfinite(expected.step))
    there = np.isfinite(expected.step).all(axis=(1, 2))
    np.testing.assert_array_equal(got.step[there], expected.step[there])
    np.testing.assert_array_equal(got.levels[there], expected.levels[there])
    assert there.sum() >= 6
    assert not got.levels[0].any()


@pytest.mark.parametrize("quantizer", QUANTIZERS, ids=str)
@pytest.mark.parametrize(("rows", "n"), [(1, 8), (3, 24), (2, 80), (40, 24)])
def test_message_sizes(quantizer: Any, rows: int, n: int, rng: np.random.Generator) -> None:
    priced, costs = called(sizes.level_bits), called(sizes.message_bytes)
    for share in (0.0, 0.3, 1.0):
        sizes_of_rows = np.exp2(rng.integers(-8, 8, size=(rows, 1))) * (rng.random((rows, 1)) < share)
        vectors = (rng.normal(size=(rows, n)) * sizes_of_rows).astype(f32)
        message = quantizer.quantize(vectors[:, None], rng.random((rows, 1, n), f32))
        s = sizes.prices(quantizer, rows, n)
        block = n * rows // message.step.size
        bits = np.array([
            [priced(part, s.levels) for part in np.array_split(row, range(ELEMENTS, block, ELEMENTS))]
            for row in message.levels.astype(f32).reshape(-1, block)
        ]) if s.is_coded else np.zeros((message.step.size, s.pieces))  # fmt: skip
        got = costs(message.step.astype(f32).ravel(), bits.astype(f32), s)
        # Costs are rounded up to bytes: sums that are right to 1e-4 bits may fall on either side.
        assert abs(got - message_bytes(message, quantizer)) <= 1


# --- learners


@pytest.mark.parametrize("loss", LOSSES, ids=lambda one: one.name)
@pytest.mark.parametrize(
    "learner",
    [omkl.SGD(0.3), omkl.SGD(0.3, decay="sqrt"), omkl.AdaGrad(0.3), omkl.Shared(), omkl.Pooled((400, 20)),
     omkl.Pooled((50,), forget=0.9), omkl.Newton(prior=10), omkl.Newton(prior=10, forget=0.9),
     omkl.Newton(prior=10, block=4)],
    ids=str,
)  # fmt: skip
def test_steps_of_learners(loss: Any, learner: Any, rng: np.random.Generator) -> None:
    outputs, n = 3 if isinstance(loss, omkl.Softmax) else 2 if hasattr(loss, "outputs") else 1, 8
    loss = replace(loss, outputs=outputs) if hasattr(loss, "outputs") else loss
    spectrum = (2.0 ** -np.arange(n)).astype(f32)
    given = None if not learner.has_prior or isinstance(learner, omkl.Newton) else spectrum
    theta = np.zeros((1, outputs, n), f32)
    memory = learner.init(theta, given if given is None else given[None])
    s, k = rule(loss, learner, n, outputs, None if given is None else given[None]), steps.room(n, outputs)
    flat = np.zeros(outputs * (n + 1), f32)  # a number follows each row, as where weights are told
    flat[n :: n + 1] = 7
    own = count = f32(0)
    noted, last, kept = np.zeros(2, f32), np.zeros(n, f32), None
    if isinstance(learner, omkl.Newton):
        kept = memory.root[0].copy(), memory.trace[0].copy()
    squares = np.zeros((outputs, n), f32)
    for t in range(12):
        z, y = rng.normal(size=n).astype(f32) if t % 3 else np.ones(n, f32), targets(loss, outputs, rng)
        z /= np.linalg.norm(z)
        rows = flat.reshape(outputs, n + 1)[:, :n]
        f = np.ascontiguousarray(np.sum(rows * z, axis=1))
        weight = f32(1) if not isinstance(learner, omkl.Pooled | omkl.Newton) else f32([1, 2.5, 0.25][t % 3])
        reach, alike = (f32(3), f32(0.4)) if isinstance(learner, omkl.Pooled) else (f32(1), f32(0))
        heard = {"reach": np.asarray(reach), "alike": np.full(1, alike)} if isinstance(learner, omkl.Pooled) else {}
        theta, memory = algorithm.learn(
            theta, memory, np.sum(theta * z, axis=-1), z[None], y, loss, 1e-3, learner,
            None if weight == 1 else np.asarray(weight), **heard,
        )  # fmt: skip
        forget = f32(getattr(learner, "forget", 1))
        if isinstance(learner, omkl.Pooled):
            own, count = forget * own + weight, forget * count + reach * weight
            seen = called(steps.curved)(own, count)
            more = own, seen, noted, last, reach, alike, k
            called(steps.pooled)(s, flat, n + 1, s.variance[0], z, f, y, weight, *more)
        elif isinstance(learner, omkl.Newton):
            assert kept is not None
            called(steps.newton)(s, flat, n + 1, z, f, y, weight, *kept, k)
        elif isinstance(learner, omkl.Shared):
            own += f32(1)
            called(steps.shared)(s, flat, n + 1, s.variance[0], z, f, y, own, k)
        elif isinstance(learner, omkl.AdaGrad):
            called(steps.adagrad)(s, flat, n + 1, z, f, y, squares, k)
        else:
            own += f32(1)
            called(steps.descend)(s, flat, n + 1, z, f, y, own, k)
        scale = np.abs(theta).max()
        assert scale > 1e-3
        np.testing.assert_allclose(flat.reshape(outputs, n + 1)[:, :n], theta[0], atol=1e-4 * scale)
    np.testing.assert_array_equal(flat[n :: n + 1], 7)
    if isinstance(learner, omkl.Pooled):
        np.testing.assert_allclose(noted[steps.LOG_CURVATURE], memory.log_curvature[0], atol=1e-5)
        np.testing.assert_allclose(noted[steps.ALIKE], memory.alike[0], atol=1e-5)
        np.testing.assert_array_equal(last, memory.last[0])
    if kept is not None:
        np.testing.assert_allclose(kept[0], memory.root[0], atol=1e-4)


@pytest.mark.parametrize("learner", [omkl.Pooled(), omkl.Newton(), omkl.SGD(0.3), omkl.Shared()], ids=str)
@pytest.mark.parametrize("z", [np.zeros(8, f32), np.full(8, 1e-30, f32)], ids=["zero", "tiny"])
def test_an_input_without_features_teaches_nothing(learner: Any, z: Any) -> None:
    s, k = rule(omkl.Logistic(), learner, 8, 1, np.ones((1, 8), f32)), steps.room(8, 1)
    theta, one = np.ones(8, f32), np.ones(1, f32)
    if isinstance(learner, omkl.Pooled):
        noted = np.zeros(2, f32), z.copy()
        given = f32(1), f32(1), f32(1), *noted, f32(2), f32(0.5), k
        called(steps.pooled)(s, theta, 8, s.variance[0], z, one, one, *given)
    elif isinstance(learner, omkl.Newton):
        root = np.eye(8, dtype=f32)[None, None]
        called(steps.newton)(s, theta, 8, z, one, one, f32(1), root, np.full(1, 8, f32), k)
    elif isinstance(learner, omkl.Shared):
        called(steps.shared)(s, theta, 8, s.variance[0], z, one, one, f32(1), k)
    else:
        called(steps.descend)(s._replace(regularization=f32(0)), theta, 8, z, one, one, f32(1), k)
    np.testing.assert_array_equal(theta, 1)


def test_readings_of_a_model(rng: np.random.Generator) -> None:
    learner, spectrum = omkl.Pooled((400, 20, 3)), (2.0 ** -np.arange(8)).astype(f32)[None]
    theta, z = rng.normal(size=(1, 2, 8)).astype(f32), rng.normal(size=8).astype(f32)
    memory = learner.init(theta, spectrum)._replace(own=f32(7), count=f32(19), log_curvature=np.full(1, -0.3, f32))
    s = rule(omkl.Logistic(), learner, 8, 2, spectrum)
    outputs, shrunk = np.empty((3, 2), f32), np.empty(8, f32)
    seen = s.bound * called(steps.curved)(f32(7), f32(19)) * np.exp(f32(-0.3))
    called(steps.readings)(s, theta.ravel(), 8, s.variance[0], z, f32(seen), shrunk, outputs)
    readings = learner.read(memory)
    expected = algorithm.predict(theta, np.zeros(3, f32), z[None], readings).kernel_outputs
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(outputs[0] / outputs[2] - 1).min() > 0.05


# --- weights


@pytest.mark.parametrize("cap", [None, 1.0, 4.0])
def test_weights(cap: float | None, rng: np.random.Generator) -> None:
    log_weights, found = rng.normal(size=6).astype(f32), rng.exponential(2, size=6).astype(f32)
    weights = np.empty(6, f32)
    called(values.softmax)(log_weights, weights)
    np.testing.assert_allclose(weights, algorithm.normalize(log_weights.astype(float)), rtol=8 * ULP)
    outputs, output = rng.normal(size=(6, 3)).astype(f32), np.empty(3, f32)
    called(rounds.combine)(outputs, weights, output)
    np.testing.assert_allclose(output, weights @ outputs, atol=1e-6)
    expected = algorithm.weigh(log_weights.astype(float), found.astype(float), 0.7, cap)
    called(rounds.weigh)(log_weights, found, f32(0.7), f32(np.inf if cap is None else cap))
    np.testing.assert_allclose(log_weights, expected, atol=2e-6)
    assert log_weights.max() == 0


def test_weights_far_apart_stay_weights() -> None:
    weights = np.empty(3, f32)
    called(values.softmax)(np.array([0, -200, -1e30], f32), weights)
    np.testing.assert_allclose(weights, [1, 0, 0], atol=1e-30)


# --- reach


KNOTS = (1.0, 1.3, 2.0, 2.9, 4.4)


def nodes_that_hear(parts: Hearing, n: int) -> Any:
    kernels = len(parts.before)
    empty: Any = np.empty((1, 0), f32)
    heard = np.array([[parts.rounds, parts.share]], f32)
    alike = np.stack([parts.before, parts.apart, parts.due], axis=-1)[None].astype(f32)
    memory = steps.Memory(empty, np.zeros((1, kernels, 2), f32), empty, empty, empty, empty)
    return rounds.Nodes(np.zeros((1, n), f32), empty, empty, parts.said.reshape(1, -1).copy(), heard, alike, memory)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [0.0, 0.4, 1.0, 2.7, 3.0, 40.0])
def test_what_a_step_counts_for(share: float, count: float, rng: np.random.Generator) -> None:
    method = omkl.recommended(reach=Reach(4.4, KNOTS), gamma=0.3, quantizer="exact", kernels=gaussian(1))
    numbers = plan.numbers(method, 1, np.ones((1, method.bank.width), f32))
    hearing = Reach(4.4, KNOTS).start(np.zeros((2, 1, 8), f32))._replace(rounds=f32(count), share=f32(share))
    got = called(rounds.alpha)(numbers, np.array([count, share], f32))
    np.testing.assert_allclose(got, Reach(4.4, KNOTS).alpha(hearing), rtol=1e-5)


def test_what_a_node_hears(rng: np.random.Generator) -> None:
    reach, shape = Reach(4.4, KNOTS), (2, 1, 8)
    hearing: Any = reach.start(np.zeros(shape, f32))
    nodes = nodes_that_hear(hearing, 16)
    hear, alike = called(rounds._hear), called(rounds._said_alike)
    for share in (1.0, 0.2, 0.9, 1.0):
        pull, weights = rng.normal(size=shape).astype(f32), (share * np.array([0.3, 0.2])).astype(f32)
        said_now = (0.5 * rng.normal(size=shape) - 0.2 * pull).astype(f32)
        hearing = reach.hear(hearing, f32(share))
        hearing = reach.listen(hearing, pull, said_now, weights.sum())
        hear(nodes, 0, pull.ravel(), weights, f32(share))
        nodes.said[0] = said_now.ravel()
        nodes.alike[0, :, rounds.BEFORE] = np.sum(pull * said_now, axis=(-2, -1))
        np.testing.assert_allclose(nodes.heard[0], [hearing.rounds, hearing.share], rtol=1e-5)
        np.testing.assert_allclose(nodes.alike[0, :, rounds.APART], hearing.apart, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(nodes.alike[0, :, rounds.DUE], hearing.due, rtol=1e-5, atol=1e-6)
        got = [alike(one) for one in nodes.alike[0]]
        np.testing.assert_allclose(got, reach.alike(hearing), atol=1e-4)


# --- how loops are given what they need


def test_what_is_held_is_what_was_given() -> None:
    @jit.entry  # type: ignore[untyped-decorator]
    def read(held: Any, own: Any) -> Any:
        k, here = lending.borrowed(held), lending.borrowed(own)
        k.learning.slope[0] += 1
        return k.pulls[2] + 10 * here.learning.slope[0] + len(k.learning.metric)

    method = omkl.paper()
    made = rounds.room(plan.numbers(method, 1, None))
    made.pulls[:], made.learning.slope[:] = np.arange(len(made.pulls)), 3
    held = lending.hold(made)
    expected = 2 + 10 * 4 + len(made.learning.metric)
    assert read(held, made) == expected
    assert made.learning.slope[0] == 4
    del made
    assert read(held, rounds.room(plan.numbers(method, 1, None))._replace(learning=held_learning())) == 2 + 50 + 40


def held_learning() -> Any:
    made = steps.room(40, 1)
    made.slope[:] = 5
    return made


def test_what_is_kept_is_known_by_what_it_is_of(tmp_path: Path) -> None:
    files = jit._Files(str(tmp_path), "loop-1.py311", None)
    stale = tmp_path / "loop-1.py311.00000000-0000000000000000.nbc"
    other = tmp_path / "loops-1.py311.00000000-0000000000000000.nbc"
    for path in (stale, other):
        path.write_bytes(b"of older sources")
    assert files.load(("x", "float32")) is None
    files.save(("x", "float32"), "one")
    files.save(("x", "float64"), "two")
    assert (files.load(("x", "float32")), files.load(("x", "float64"))) == ("one", "two")
    assert (stale.exists(), other.exists()) == (False, True)
    first, second = (tmp_path / files._file(("x", kind)) for kind in ("float32", "float64"))
    second.write_bytes(first.read_bytes())  # another's
    assert files.load(("x", "float64")) is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("", "no error"),
        ("codegen.JITCodeLibrary._optimize_final_module = None", "not callable"),
        ("del codegen.JITCodeLibrary", "cannot import"),
        ("compiler_machinery.register_pass = None", "not callable"),
    ],
    ids=["alike", "method", "class", "function"],
)
def test_a_newer_numba_is_tried_first(change: str, told: str, tmp_path: Path) -> None:
    program = f"""
import numba
from numba.core import codegen, compiler_machinery
numba.version_info = numba.version_info._replace(short=(9, 0))
{change}
try:
    from omkl.compiled import node
    print("no error")
except ImportError as error:
    print(error)
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told in done.stdout
