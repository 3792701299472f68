import math
from collections.abc import Callable

import numpy as np
import pytest

from omkl import features
from omkl.errors import InputError
from omkl.features import Features, Kernel, cauchy, gaussian, laplacian
from tests.conftest import Library

EXACT: dict[str, Callable[[np.ndarray, float], float]] = {
    "gaussian": lambda d, s: math.exp(-(d @ d) / (2 * s * s)),
    "laplacian": lambda d, s: math.exp(-np.abs(d).sum() / s),
    "cauchy": lambda d, s: float(np.prod(1 / (1 + d * d / s**2))),
}


@pytest.mark.parametrize("kernel", [*gaussian(0.5, 3), *laplacian(1, 4), *cauchy(1, 2.5)], ids=str)
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


def test_unknown_kernel_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'gaussian'"):
        Kernel("gausian")
