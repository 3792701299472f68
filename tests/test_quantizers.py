import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from omkl import algorithm, compressors, noise, quantizers
from omkl.compressors import RandK, Sign, TopK
from omkl.errors import InputError
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer, restore, round_up
from tests.conftest import Library

ALL: list[Quantizer] = [
    Exact(),
    QSGD(bits=3),
    QSGD(bits=8),
    QSGD(bits=1, rescale=True),
    QSGD(bits=3, rescale=True, block=8),
    QSGD(bits=3, block=20),
    Nearest(),
    Nearest(step=1),
    Nearest(step=3, block=10),
    Sign(),
    TopK(k=4),
    RandK(k=10),
]
finite = st.floats(-1e6, 1e6, width=32)
vectors = hnp.arrays(
    np.float32, 40, elements=st.one_of(st.just(0.0), finite, st.floats(-(2.0**-40), 2.0**-40, width=32))
)


def draws(count: int, n: int, seed: int = 0) -> np.ndarray:
    return np.asarray(noise.dither(noise.fold(noise.key(seed, "test"), np.arange(count)[:, None]), (n,)))


@pytest.mark.parametrize("quantizer", ALL, ids=str)
@given(v=vectors)
def test_within_delta_for_every_vector(quantizer: Quantizer, v: np.ndarray) -> None:
    count = 400
    u = draws(count, 40)
    error = restore(quantizer.quantize(np.broadcast_to(v, u.shape), u)).astype(np.float64) - v
    power = float((v.astype(np.float64) ** 2).sum())
    squares = (error**2).sum(axis=-1)
    allowed = (1 - quantizer.delta(40)) * power + 5 * squares.std() / count**0.5 + 1e-5 * power + 1e-30
    assert squares.mean() <= allowed


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=3, block=10), QSGD(bits=8)], ids=str)
def test_plain_qsgd_is_unbiased(quantizer: QSGD, rng: np.random.Generator) -> None:
    v = rng.normal(size=40).astype(np.float32)
    u = draws(20_000, 40)
    mean = restore(quantizer.quantize(np.broadcast_to(v, u.shape), u)).astype(np.float64).mean(axis=0)
    step = float(quantizer.quantize(v, u[0]).step.max())
    assert np.abs(mean - v).max() < 5 * step / 2 / 20_000**0.5


def test_qsgd_by_hand() -> None:
    v = np.array([3.0, -4.0, 0.0, 0.0], dtype=np.float32)  # norm 5, M = 7: 4.2 and 5.6 levels before the rounding
    message = QSGD(bits=3).quantize(v, np.array([0.9, 0.1, 0.5, 0.99], dtype=np.float32))
    assert message.step[0] == 366 / 512  # 5/7 = 365.7/512, nine bits, rounded up
    np.testing.assert_array_equal(message.levels, [5, -5, 0, 0])
    np.testing.assert_array_equal(restore(message), np.array([5, -5, 0, 0]) * 366 / 512)


def test_nearest_by_hand() -> None:
    v = np.array([4.0, -1.0, 0.2, 0.0], dtype=np.float32)  # rms 2.0640, width 2.0640 at step 1
    message = Nearest(step=1).quantize(v, None)
    np.testing.assert_array_equal(message.levels, [2, 0, 0, 0])
    assert message.step[0] == 2.0  # (v.l)/(l.l) = 8/4
    fit = Nearest(step=0.5).quantize(v, None)
    np.testing.assert_array_equal(fit.levels, [4, -1, 0, 0])
    assert fit.step[0] == 1.0


@pytest.mark.parametrize("quantizer", ALL, ids=str)
def test_one_entry_carries_the_whole_norm(quantizer: Quantizer) -> None:
    v = np.zeros(40, dtype=np.float32)
    v[3] = -0.7
    message = quantizer.quantize(v, np.linspace(0.99, 0.9999, 40, dtype=np.float32))
    assert np.abs(message.levels).max() <= 255
    got = restore(message)[3]
    assert -0.7 * (1 + 2**-8) <= got < 0
    assert np.count_nonzero(message.levels) == (40 if quantizer.name == "sign" else 1)


@given(st.floats(2**-60, 2**59, width=32))
def test_steps_are_rounded_up_to_two_bytes(step: float) -> None:
    rounded = round_up(np.array([step], dtype=np.float32))
    code = rounded.view(np.uint32) >> 15
    assert (code << np.uint32(15)).view(np.float32) == rounded
    assert step <= rounded[0] <= step * (1 + quantizers.ROUNDING)
    np.testing.assert_array_equal(round_up(rounded), rounded)


def test_steps_round_alike_everywhere(library: Library, rng: np.random.Generator) -> None:
    steps = np.exp(rng.uniform(-60, 40, size=2000)).astype(np.float32)
    steps[:3] = 0, 2.0**-61, 2.0**-60
    np.testing.assert_array_equal(library.call(round_up, steps), round_up(steps))


@pytest.mark.parametrize("quantizer", ALL, ids=str)
def test_ten_thousand_absorbs_are_bit_equal(quantizer: Quantizer, rng: np.random.Generator) -> None:
    # The messages come from one executor, the copies are kept by both: NumPy one by one, XLA fused in a scan.
    n = 40
    sizes = np.exp(rng.uniform(-30, 5, size=(10_000, 3, 1)))
    messages = quantizer.quantize(
        (rng.normal(size=(10_000, 3, n)) * sizes).astype(np.float32), draws(30_000, n).reshape(-1, 3, n)
    )
    here = np.zeros((3, n), dtype=np.float32)
    for levels, step in zip(*messages, strict=True):
        here = algorithm.absorb(here, Message(levels, step))

    @jax.jit
    def absorb_all(levels: jax.Array, steps: jax.Array) -> jax.Array:
        start = jnp.zeros((3, n), dtype=jnp.float32)
        return jax.lax.scan(lambda h, m: (algorithm.absorb(h, Message(*m)), None), start, (levels, steps), unroll=4)[0]

    there = np.asarray(absorb_all(*map(jnp.asarray, messages)))
    np.testing.assert_array_equal(here.view(np.uint32), there.view(np.uint32))
    assert np.abs(here).max() > 1


@pytest.mark.parametrize("step", [0.5, 1, 2, 2.5, 3, 7])
@pytest.mark.parametrize("n", [2, 40, 400])
def test_declared_width_holds_every_level(step: float, n: int, rng: np.random.Generator) -> None:
    v = rng.normal(size=(500, n)).astype(np.float32)
    v[:50, 1:] *= 1e-3
    largest = int(np.abs(Nearest(step).quantize(v, None).levels).max())
    width = (Nearest(step).size(n) - 16) // n
    assert 2 * largest + 1 <= 2**width


def test_nearest_reaches_the_measured_contraction(rng: np.random.Generator) -> None:
    for n in (40, 200):
        for step, delta in ((1, 0.925), (1.5, 0.844), (2, 0.749), (2.5, 0.635), (3, 0.501)):
            v = rng.normal(size=(4000, n)).astype(np.float32)
            error = ((restore(Nearest(step).quantize(v, None)) - v) ** 2).sum(axis=1) / (v**2).sum(axis=1)
            assert 1 - error.mean() == pytest.approx(delta, abs=0.006)


def test_delta_of_the_paper() -> None:
    assert QSGD(bits=3).delta(40) == pytest.approx(1 - 40 / 49 * (1 + 2**-8) ** 2)
    assert QSGD(bits=3, rescale=True).delta(40) == pytest.approx(1 / (1 + 40 / 49 * (1 + 2**-8) ** 2))
    assert QSGD(bits=3, block=20).delta(40) == QSGD(bits=3).delta(20)
    assert QSGD(bits=3, rescale=True).delta(200) == pytest.approx(1 / (1 + math.sqrt(200) / 7 * (1 + 2**-8)))


def test_sizes_at_fixed_width() -> None:
    assert QSGD(bits=3).size(40) == 40 * 4 + 16
    assert QSGD(bits=3, block=10).size(40) == 40 * 4 + 4 * 16
    assert Exact().size(40) == 1280
    assert Nearest(2.5).size(40) == 40 * 3 + 16  # levels -3 ... 3


@pytest.mark.parametrize(("quantizer", "n"), [(QSGD(bits=3), 200), (QSGD(bits=2), 40), (QSGD(bits=1, block=2), 4)])
def test_plain_qsgd_without_contraction_is_refused(quantizer: QSGD, n: int) -> None:
    with pytest.raises(InputError, match=r"delta = -?[\d.]+; .* use rescale=True, more bits, a smaller block"):
        quantizer.check(n)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="bits is 9; QSGD takes 1 to 8"):
        QSGD(bits=9)
    with pytest.raises(InputError, match="block is 0"):
        Nearest(block=0)
    with pytest.raises(InputError, match=r"block 30 does not divide .* 40 .* such as 20"):
        Nearest(block=30).check(40)
    with pytest.raises(InputError, match="step is 0"):
        Nearest(step=0)
    with pytest.raises(InputError, match="did you mean 'qsgd'"):
        compressors.named("qsdg")


def test_top_and_random_k_by_hand() -> None:
    v = np.array([[1.0, -5.0, 2.0, 2.0, 0.5]], dtype=np.float32)
    np.testing.assert_array_equal(restore(TopK(2).quantize(v, None)), [[0, -5, 2, 0, 0]])  # of equals, the first
    u = np.array([[0.9, 0.2, 0.5, 0.1, 0.3]], dtype=np.float32)
    np.testing.assert_array_equal(restore(RandK(2).quantize(v, u)), [[0, -5, 0, 2, 0]])
    np.testing.assert_allclose(restore(Sign().quantize(v, None)), [[2.1, -2.1, 2.1, 2.1, 2.1]], rtol=2**-8)
    assert (TopK(4).size(40), RandK(4).size(40), Sign().size(40)) == (4 * 38, 128, 56)


@pytest.mark.parametrize("kind", [TopK, RandK])
def test_k_must_fit(kind: type[TopK] | type[RandK]) -> None:
    with pytest.raises(InputError, match="k is 0; it must be a whole number from 1 on"):
        kind(0)
    with pytest.raises(InputError, match="k is 41; vectors have n = 2D = 40"):
        kind(41).check(40)
