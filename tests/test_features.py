import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import stats

from omkl import features
from omkl.errors import InputError
from omkl.features import Features, Kernel, cauchy, gaussian, laplacian, matern
from tests.conftest import Library


def matern_by_hand(d: np.ndarray, sigma: float, nu: float) -> float:
    s = math.sqrt(2 * nu) * float(np.linalg.norm(d)) / sigma
    return {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s * s / 3}[nu] * math.exp(-s)


EXACT: dict[str, Callable[[np.ndarray, float], float]] = {
    "gaussian": lambda d, s: math.exp(-(d @ d) / (2 * s * s)),
    "laplacian": lambda d, s: math.exp(-np.abs(d).sum() / s),
    "cauchy": lambda d, s: float(np.prod(1 / (1 + d * d / s**2))),
    "matern12": partial(matern_by_hand, nu=0.5),
    "matern32": partial(matern_by_hand, nu=1.5),
    "matern52": partial(matern_by_hand, nu=2.5),
}


@pytest.mark.parametrize(
    "kernel",
    [*gaussian(0.5, 3), *laplacian(1, 4), *cauchy(1, 2.5), *matern(1, nu=0.5), *matern(0.4, 3), *matern(2, nu=2.5)],
    ids=str,
)
def test_features_estimate_the_kernel(kernel: Kernel) -> None:
    # cos(v.(x-x')) has a standard deviation of at most 1 / sqrt(2) about the kernel, so the mean of D of them
    # stays within 5 / sqrt(2 D); a bandwidth wrong by a factor of two is off by three times that here.
    D = 20_000
    V = features.draw([kernel], D, 3, seed=0)
    bound = 5 / math.sqrt(2 * D)
    for scale in (0.7, 1.2):
        x = np.array([[0.2, -1.0, 0.5]])
        other = x + scale * kernel.sigma * np.array([1, -0.8, 0.4])
        z, w = (features.transform(a.astype(np.float32), Features(V))[0, 0] for a in (x, other))
        assert z @ w == pytest.approx(EXACT[kernel.name]((x - other)[0], kernel.sigma), abs=bound)
        assert abs(z @ w - EXACT[kernel.name]((x - other)[0], 2 * kernel.sigma)) > 3 * bound


def test_transform_by_hand(library: Library) -> None:
    V = np.array([[[1.0, 0.0], [0.0, 2.0]]], dtype=np.float32)
    z = library.call(features.transform, np.array([0.5, 0.25], dtype=np.float32), Features(V))
    expected = np.array([[math.sin(0.5), math.sin(0.5), math.cos(0.5), math.cos(0.5)]]) / math.sqrt(2)
    np.testing.assert_allclose(z, expected, rtol=1e-6)


def test_features_have_length_one(rng: np.random.Generator) -> None:
    V = features.draw(gaussian(1, 3), 20, 5, 0)
    z = features.transform(rng.normal(size=(4, 7, 5)).astype(np.float32), Features(V))
    assert z.shape == (4, 7, 2, 40)
    np.testing.assert_allclose(np.linalg.norm(z, axis=-1), 1, rtol=1e-6)


def test_a_row_depends_on_seed_kernel_and_index_alone() -> None:
    small, large = features.draw(gaussian(1), 5, 3, seed=7), features.draw(gaussian(1, 3), 50, 3, seed=7)
    np.testing.assert_array_equal(small[0], large[0, :5])
    assert not np.any(small == features.draw(gaussian(1), 5, 3, seed=8))
    assert not np.any(large[0] == 3 * large[1])


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("dimension", [1, 2, 10])
def test_matern_kernels_at_several_distances(nu: float, dimension: int) -> None:
    (kernel,), D = matern(2, nu=nu), 40_000
    V = features.draw([kernel], D, dimension, seed=1)[0].astype(np.float64)
    along = np.linspace(1, 2, dimension) / np.linalg.norm(np.linspace(1, 2, dimension))
    for distance in (0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 12.0):
        waves = np.cos(distance * V @ along)
        error = waves.mean() - matern_by_hand(distance * along, 2, nu)
        assert abs(error) <= 4 * waves.std() / math.sqrt(D)


@pytest.mark.parametrize("nu", [0, 1, 3.5, math.nan, math.inf])
def test_other_smoothness_is_refused(nu: float) -> None:
    with pytest.raises(InputError, match=r"nu = 0\.5, 1\.5 or 2\.5; try nu=1\.5"):
        matern(1, nu=nu)


@pytest.mark.parametrize("kernel", [*gaussian(2), *matern(2, nu=0.5), *matern(2), *matern(2, nu=2.5)], ids=str)
@pytest.mark.parametrize(("D", "d"), [(1, 1), (5, 1), (7, 2), (3, 8), (20, 8), (40, 23), (6, 300)])
def test_orthogonal_rows_keep_their_lengths(kernel: Kernel, D: int, d: int) -> None:
    independent = features.draw([kernel], D, d, seed=4)[0].astype(np.float64)
    rows = features.draw([kernel], D, d, seed=4, orthogonal=True)[0].astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(lengths, np.linalg.norm(independent, axis=1), rtol=1e-6)
    np.testing.assert_allclose(rows[::d], independent[::d], rtol=2e-7)
    for block in np.split(rows / lengths[:, None], range(d, D, d)):
        np.testing.assert_allclose(block @ block.T, np.eye(len(block)), atol=1e-6)


def test_more_orthogonal_rows_or_kernels_keep_those_there() -> None:
    bank = gaussian(1) + laplacian(1) + matern(3)
    all_rows = features.draw(bank, 30, 8, seed=2, orthogonal=True)
    for D in (1, 5, 8, 9, 16, 29):
        few = features.draw(bank[:2], D, 8, seed=2, orthogonal=True)
        np.testing.assert_allclose(few, all_rows[:2, :D], rtol=2e-7)  # products of other shapes, rounded once
    assert not np.any(all_rows == features.draw(bank, 30, 8, seed=3, orthogonal=True))


def test_only_radial_kernels_are_made_orthogonal() -> None:
    bank = (*laplacian(1), *cauchy(2), Kernel("gaussian", spectrum=lambda rng, d: rng.uniform(size=d)))
    np.testing.assert_array_equal(features.draw(bank, 9, 3, 0, orthogonal=True), features.draw(bank, 9, 3, 0))


@pytest.mark.parametrize("kernel", [*gaussian(2), *matern(2, nu=0.5), *matern(2), *matern(2, nu=2.5)], ids=str)
def test_every_orthogonal_row_has_the_kernels_spectrum(kernel: Kernel) -> None:
    # Row k of a block over many seeds: its length, and its part along one axis, which is a t (or normal) of its own.
    d, seeds = 8, 1000
    rows = np.stack([features.draw([kernel], d, d, seed, orthogonal=True)[0] for seed in range(seeds)]) * kernel.sigma
    degrees = features.DEGREES.get(kernel.name)
    squares = stats.chi2(d) if degrees is None else stats.f(d, degrees)
    axis = stats.norm() if degrees is None else stats.t(degrees)
    bound = 2.1 / math.sqrt(seeds)  # the Kolmogorov distance exceeds it with probability 3e-4
    for k in range(d):
        length = np.sum(rows[:, k].astype(np.float64) ** 2, axis=1) / (1 if degrees is None else d)
        assert stats.kstest(length, squares.cdf).statistic < bound
        assert stats.kstest(rows[:, k, 3], axis.cdf).statistic < bound


@pytest.mark.parametrize(("kernel", "d", "factor"), [
    (*gaussian(1), 8, 0.32), (*gaussian(1), 23, 0.18), (*matern(1), 8, 0.7), (*matern(1), 23, 0.7),
])  # fmt: skip
def test_orthogonal_features_estimate_the_kernel_better(kernel: Kernel, d: int, factor: float) -> None:
    seeds, x = 600, np.ones(d) / math.sqrt(d)  # at distance sigma
    exact = EXACT[kernel.name](x, 1.0)
    independent, orthogonal = (
        np.cos([features.draw([kernel], 2 * d, d, seed, orthogonal=which)[0] @ x for seed in range(seeds)]).mean(axis=1)
        for which in (False, True)
    )
    for estimates in (independent, orthogonal):
        assert abs(estimates.mean() - exact) < 4 * estimates.std() / math.sqrt(seeds)
    assert orthogonal.var() < factor * independent.var()


def test_a_spectrum_of_ones_own() -> None:
    kernel = Kernel("student", 2.0, spectrum=lambda rng, d: rng.standard_t(3, size=d))
    few, many = features.draw([kernel], 4, 3, 0), features.draw([*gaussian(1), kernel], 9, 3, 0)
    assert few.dtype == np.float32
    np.testing.assert_array_equal(few, features.draw([kernel], 8, 3, 0)[:, :4])
    assert not np.any(few[0] == many[1, :4])  # another place in the bank, another draw


@pytest.mark.parametrize("bad", [lambda rng, d: rng.normal(size=d + 1), lambda rng, d: np.full(d, np.nan)])
def test_a_bad_spectrum_is_refused(bad: features.Spectrum) -> None:
    with pytest.raises(InputError, match="must return 3 finite numbers"):
        features.draw([Kernel("mine", spectrum=bad)], 4, 3, 0)


@pytest.mark.parametrize("sigma", [0, -1, math.nan, math.inf])
def test_bad_bandwidths_are_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="bandwidth must be positive"):
        gaussian(sigma)


@pytest.mark.parametrize("sigma", [1e-320, 1e-39, 1e-18, 1e18, 1e300])
def test_bandwidths_whose_features_are_no_numbers_are_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="a bandwidth must lie between 1e-17 and 1e"):
        gaussian(sigma)


def test_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gaussian'"):
        Kernel("gausian")
