"""Compiled bodies are those of ``wire.codec``, byte for byte, and what one refuses the other refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl import algorithm
from omkl.compiled.coder import CompiledLevels
from omkl.quantizers import QSGD, Message, Nearest
from omkl.wire import Codec, WireError
from omkl.wire.codec import Levels
from omkl.wire.tables import Coded

QUANTIZERS: list[Coded] = [QSGD(3), QSGD(1), QSGD(8, block=20), Nearest(2.5), Nearest(0.2), Nearest(1.0, block=4)]
SHAPES = [(3, 1, 40), (1, 1, 1400), (2, 10, 40), (40, 1, 20)]
CASES = [(CompiledLevels(shape, one), Levels(shape, one), one, shape) for one in QUANTIZERS for shape in SHAPES]


def message(quantizer: Coded, shape: tuple[int, int, int], seed: int, power: int, silent: int, spike: int) -> Message:
    """Return that of a random vector, some rows of it zero, some far larger than others, some with one large entry."""
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=shape) * 10.0 ** rng.integers(-power, power + 1, size=(*shape[:2], 1))
    vector[rng.integers(shape[0], size=silent)] = 0
    vector[..., 0] *= 10.0**spike
    return quantizer.quantize(vector.astype(np.float32), rng.random(shape).astype(np.float32))


@given(st.sampled_from(CASES), st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 3), st.integers(0, 6))
@settings(max_examples=300, deadline=None)
def test_bytes_and_messages_are_those_of_the_codec(
    case: tuple[CompiledLevels, Levels, Coded, tuple[int, int, int]], seed: int, power: int, silent: int, spike: int
) -> None:
    compiled, plain, quantizer, shape = case
    sent = message(quantizer, shape, seed, power, silent, spike)
    body = compiled.pack(sent)
    assert body == plain.pack(sent)
    for read in (compiled.unpack(*body), plain.unpack(*body)):
        assert read.levels.dtype == np.int16
        assert read.step.dtype == np.float32
        np.testing.assert_array_equal(read.levels, sent.levels)
        np.testing.assert_array_equal(read.step, sent.step)


@given(
    st.sampled_from(CASES),
    st.integers(0, 2**32),
    st.integers(0, 6),
    st.integers(0, 3),
    st.sampled_from([0.0, 1.0, 1e30, 3e38, np.inf, np.nan]),
)
@settings(max_examples=300, deadline=None)
def test_sums_are_those_of_the_algorithm_to_the_bit(
    case: tuple[CompiledLevels, Levels, Coded, tuple[int, int, int]], seed: int, power: int, silent: int, value: float
) -> None:
    compiled, plain, quantizer, shape = case
    sent, hidden = message(quantizer, shape, seed, power, silent, 0), np.random.default_rng(seed).normal(size=shape)
    hidden[0, 0, :3] = value
    before = hidden.astype(np.float32)
    sums = before.copy(), before.copy()
    is_finite = [body.add(*compiled.pack(sent), into) for body, into in zip((compiled, plain), sums, strict=True)]
    assert is_finite == [value < 1e38] * 2
    for found in sums:
        np.testing.assert_array_equal(found, algorithm.absorb(before, sent) if value < 1e38 else before)


def outcome(body: Levels, shape: tuple[int, int, int], data: bytes) -> tuple[bytes, bytes] | str:
    """Return what comes of bytes, read and added up, or what is said of them; those refused add nothing."""
    hidden = np.ones(shape, dtype=np.float32)
    try:
        body.add(True, data, hidden)
    except WireError:
        np.testing.assert_array_equal(hidden, 1)
    try:
        found = body.unpack(True, data)
    except WireError as error:
        np.testing.assert_array_equal(hidden, 1)
        return str(error)
    np.testing.assert_array_equal(hidden, algorithm.absorb(np.ones_like(hidden), found))
    return found.levels.tobytes(), found.step.tobytes()


@given(st.sampled_from(CASES), st.integers(0, 2**32), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bodies_fare_alike(
    case: tuple[CompiledLevels, Levels, Coded, tuple[int, int, int]], seed: int, data: st.DataObject
) -> None:
    compiled, plain, quantizer, shape = case
    body = bytearray(compiled.pack(message(quantizer, shape, seed, 1, 0, 0))[1])
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))]) + data.draw(st.binary(max_size=4))
    assert outcome(compiled, shape, damaged) == outcome(plain, shape, damaged)


@given(st.sampled_from(CASES), st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_fare_alike(case: tuple[CompiledLevels, Levels, Coded, tuple[int, int, int]], data: bytes) -> None:
    compiled, plain, _, shape = case
    assert outcome(compiled, shape, data) == outcome(plain, shape, data)


@pytest.mark.parametrize(
    "broken",
    [
        Message(np.full((3, 1, 40), 99, dtype=np.int16), np.ones((3, 1, 1), dtype=np.float32)),
        Message(np.ones((3, 1, 40), dtype=np.int16), np.zeros((3, 1, 1), dtype=np.float32)),
        Message(np.ones((3, 1, 40), dtype=np.int16), np.full((3, 1, 1), 1 / 3, dtype=np.float32)),
        Message(np.ones((3, 1, 39), dtype=np.int16), np.ones((3, 1, 1), dtype=np.float32)),
    ],
)
def test_what_cannot_be_packed_is_refused_in_the_same_words(broken: Message) -> None:
    said = []
    for body in (CompiledLevels((3, 1, 40), QSGD(3)), Levels((3, 1, 40), QSGD(3))):
        with pytest.raises(ValueError, match=r"level|step") as caught:
            body.pack(broken)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_steps_of_another_precision_are_packed_too() -> None:
    sent = message(QSGD(3), (3, 1, 40), 0, 0, 0, 0)
    wide = Message(sent.levels, sent.step.astype(np.float64))
    assert CompiledLevels((3, 1, 40), QSGD(3)).pack(wide) == Codec((3, 1, 40), QSGD(3)).pack(sent)


def test_a_codec_takes_either() -> None:
    sent, before = message(QSGD(3), (3, 1, 40), 0, 0, 0, 0), Codec((3, 1, 40), QSGD(3))
    compiled = Codec((3, 1, 40), QSGD(3), CompiledLevels)
    assert (type(before._body), type(compiled._body)) == (Levels, CompiledLevels)
    assert compiled.pack(sent) == before.pack(sent)
