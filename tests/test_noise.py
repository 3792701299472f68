import numpy as np
import pytest

from omkl import noise
from tests.conftest import Library


def test_words_are_these() -> None:
    # Golden: a change here changes every published run.
    assert noise.words(noise.key(0, "quantizer"), 3).tolist() == [3764036970, 2967727636, 3793155351]
    assert noise.words(noise.fold(noise.key(1, "features"), 5), 2).tolist() == [1515848271, 2802850795]


def test_same_words_everywhere(library: Library) -> None:
    key = noise.fold(noise.key([0, 1, 2], "quantizer"), np.arange(4, dtype=np.uint32)[:, None, None])

    def draw(low: object, high: object) -> object:
        return noise.dither(noise.fold(noise.Key(low, high), 7), (3, 5))

    drawn = library.call(draw, *key)
    assert drawn.shape == (4, 3, 3, 5)
    np.testing.assert_array_equal(drawn, noise.dither(noise.fold(key, 7), (3, 5)))


def test_a_number_depends_on_its_coordinates_alone() -> None:
    key = noise.key(3, "quantizer")
    whole = noise.words(noise.fold(key, np.arange(10, dtype=np.uint32)[:, None]), 8)
    np.testing.assert_array_equal(noise.words(noise.fold(key, 7), 8), whole[7])
    np.testing.assert_array_equal(noise.words(noise.fold(key, 7), 3), whole[7, :3])
    np.testing.assert_array_equal(noise.key([3, 4], "x").low[0], noise.key(3, "x").low)


@pytest.mark.parametrize("other", [noise.key(0, "data"), noise.key(1, "quantizer")])
def test_streams_and_seeds_differ(other: noise.Key) -> None:
    assert not np.any(noise.words(noise.key(0, "quantizer"), 100) == noise.words(other, 100))


def test_uniform_in_every_moment_and_bit() -> None:
    n = 2**20
    words = noise.words(noise.key(0, "test"), n)
    bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / n**0.5
    counts = np.bincount(words >> 22, minlength=1024)
    chi2 = ((counts - n / 1024) ** 2 / (n / 1024)).sum()
    assert abs(chi2 - 1023) < 5 * (2 * 1023) ** 0.5
    u = noise.dither(noise.key(1, "test"), (n,)).astype(np.float64)
    assert 0 < u.min() <= u.max() < 1
    assert abs(u.mean() - 1 / 2) < 5 * (1 / 12 / n) ** 0.5
    assert abs((u**2).mean() - 1 / 3) < 5 * (4 / 45 / n) ** 0.5


def test_neighboring_coordinates_are_uncorrelated() -> None:
    key = noise.key(0, "test")
    nodes = noise.fold(key, np.arange(1000, dtype=np.uint32)[:, None])
    u = noise.dither(nodes, (400,)) - 0.5
    bound = 5 / 12 / u.size**0.5
    assert abs((u[1:] * u[:-1]).mean()) < bound  # nodes
    assert abs((u[:, 1:] * u[:, :-1]).mean()) < bound  # counters
    later = noise.dither(noise.fold(nodes, 1), (400,)) - 0.5
    latest = noise.dither(noise.fold(nodes, 2), (400,)) - 0.5
    assert abs((later * latest).mean()) < bound  # rounds
    assert abs((u[:, 200:] * u[:, :200]).mean()) < bound  # the two halves of a word


def test_one_bit_of_the_counter_flips_half_the_word() -> None:
    counters = np.arange(2**16, dtype=np.uint32)
    words = noise.words(noise.key(5, "test"), 2**17)
    for bit in range(16):
        flipped = np.bitwise_count(words[counters] ^ words[counters ^ np.uint32(1 << bit)])
        assert abs(flipped.mean() - 16) < 0.1
