import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl.quantizers import QSGD, Nearest
from omkl.wire.tables import TOTAL, Coded, frequencies, intervals, layout, lookup

quantizers = st.one_of(
    st.builds(QSGD, bits=st.integers(1, 8), rescale=st.booleans()), st.builds(Nearest, step=st.floats(0.1, 10))
)


@given(quantizer=quantizers, length=st.integers(1, 3000))
def test_every_level_has_a_share(quantizer: Coded, length: int) -> None:
    by_magnitude = frequencies(quantizer, length)
    assert len(by_magnitude) == layout(quantizer, length)[1] + 1
    assert min(by_magnitude) >= 1
    assert by_magnitude[0] + 2 * sum(by_magnitude[1:]) == TOTAL


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), Nearest(step=1)], ids=str)
def test_remainders_are_dealt_from_the_lowest_level_up(quantizer: Coded) -> None:
    table, (symbols, entries) = intervals(quantizer, 40), lookup(quantizer, 40)
    assert list(table) == sorted(table)
    for level, (frequency, rest, start) in table.items():
        assert frequency + rest == TOTAL
        found = {entries[place] for place in symbols[start : start + frequency]}
        assert found == {(level, rest, start)}
    assert len(symbols) == TOTAL


@pytest.mark.parametrize("n", [2, 40, 200])
def test_nearest_by_the_error_function(n: int) -> None:
    for step in (0.5, 1.0, 2.5):
        most = Nearest(step).most(n)
        above = [math.erfc((level - 0.5) * step / math.sqrt(2)) / 2 for level in range(1, most + 1)] + [0.0]
        room = TOTAL - 2 * most - 1
        expected = [1 + math.floor(room * (above[level] - above[level + 1])) for level in range(most)]
        assert list(frequencies(Nearest(step), n)[1:]) == expected


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=2, rescale=True), Nearest(step=1.5)], ids=str)
def test_they_are_those_of_noise(quantizer: Coded, rng: np.random.Generator) -> None:
    v, u = (draw((20_000, 40), dtype=np.float32) for draw in (rng.standard_normal, rng.random))
    counts = np.bincount(np.abs(quantizer.quantize(v, u).levels).reshape(-1)) / v.size
    shares = np.array(frequencies(quantizer, 40)) / TOTAL * np.where(np.arange(layout(quantizer, 40)[1] + 1), 2, 1)
    np.testing.assert_allclose(counts, shares[: len(counts)], atol=0.012)
    entropy = -(counts * np.log2(counts, where=counts > 0, out=np.zeros_like(counts))).sum()
    cost = -(counts * np.log2(shares[: len(counts)])).sum()
    assert cost < entropy + 0.02  # the price of fixed tables, in bits a level


def test_rescaling_and_blocks_change_nothing_but_the_length() -> None:
    assert frequencies(QSGD(bits=3, rescale=True), 40) == frequencies(QSGD(bits=3), 40)
    assert layout(QSGD(bits=3, block=20), 40) == (20, 7)
    assert frequencies(QSGD(bits=3, block=20), 20) == frequencies(QSGD(bits=3), 20)
