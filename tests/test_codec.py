import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl.compressors import RandK, Sign, TopK
from omkl.errors import InputError
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer
from omkl.wire import Codec, WireError, fixed, steps, tables
from omkl.wire.coded import Coder, plan
from tests.wire_cases import CODECS, NAMES, equal, messages

every_codec = pytest.mark.parametrize("codec", CODECS, ids=NAMES)


@every_codec
@given(data=st.data())
def test_what_is_packed_comes_back(codec: Codec, data: st.DataObject) -> None:
    message = data.draw(messages(codec))
    assert equal(codec.unpack(*codec.pack(message)), message)
    assert len(codec.pack(message)[1]) <= codec.most_bytes


@every_codec
@settings(max_examples=200)
@given(coded=st.booleans(), body=st.binary(max_size=300))
def test_any_bytes_are_refused_or_packed_alike(codec: Codec, coded: bool, body: bytes) -> None:
    refused_or_packed_alike(codec, coded, body)


def refused_or_packed_alike(codec: Codec, coded: bool, body: bytes) -> None:
    try:
        message = codec.unpack(coded, body)
    except WireError:
        return
    again = codec.pack(message)
    assert again == (coded, body) or (not coded and again[0] and len(again[1]) < len(body))
    assert equal(codec.unpack(*again), message)


@every_codec
@given(data=st.data())
def test_changed_bodies_are_refused_or_packed_alike(codec: Codec, data: st.DataObject) -> None:
    coded, body = codec.pack(data.draw(messages(codec)))
    at = data.draw(st.integers(0, len(body)))
    changed = body[:at] + data.draw(st.binary(max_size=3)) + body[data.draw(st.integers(at, at + 3)) :]
    refused_or_packed_alike(codec, coded, changed)


def test_coded_only_where_it_is_shorter() -> None:
    codec = Codec((1, 1, 16), QSGD(bits=3))
    step = np.ones((1, 1, 1), dtype=np.float32)
    dense, sparse = np.full((1, 1, 16), 7, dtype=np.int16), np.zeros((1, 1, 16), dtype=np.int16)
    assert codec.pack(Message(dense, step)) == (False, bytes.fromhex("007f" + "ee" * 8))  # 1.0, and 7 + 7 each
    assert codec.pack(Message(sparse, step))[0]
    body = Coder(QSGD(bits=3), 1, 16).pack(steps.codes(step), dense[0].tolist())
    with pytest.raises(WireError, match="coded bytes; at fixed width it is 10, no longer"):
        codec.unpack(True, body)


def test_fixed_is_read_even_where_coded_is_shorter() -> None:
    codec = Codec((1, 1, 16), QSGD(bits=3))
    message = codec.unpack(False, bytes.fromhex("007f" + "77" * 7 + "87"))
    assert message.levels.tolist() == [[[0] * 15 + [1]]]
    assert codec.pack(message)[0]


def test_blocks_without_a_step_take_no_levels() -> None:
    codec = Codec((3, 1, 40), Nearest(step=2.5))
    silent = Message(np.zeros((3, 1, 40), dtype=np.int16), np.zeros((3, 1, 1), dtype=np.float32))
    assert codec.pack(silent) == (True, b"")
    # Found by fuzzing: three numbers need two lengths, so nothing at all is shorter at fixed width.
    long = Codec((1, 1, 1100), Nearest(step=2.5))
    nothing = Message(np.zeros((1, 1, 1100), dtype=np.int16), np.zeros((1, 1, 1), dtype=np.float32))
    assert long.pack(nothing) == (False, b"\0\0")
    assert equal(long.unpack(False, b"\0\0"), nothing)


@pytest.mark.parametrize(
    ("coded", "body", "reason"),
    [
        (False, "", "0 bytes; 1 steps alone take 2"),
        (False, "007f ee", "1 bytes of levels; 4 levels take 2"),
        (False, "007f eeee 00", "3 bytes of levels; 4 levels take 2"),
        (False, "007f eefe", "level number 15; the quantizer has 15"),
        (False, "0000 00", "1 bytes of levels; 0 levels take 0"),
        (False, "00ff eeee", "step code 65280; it must be 0, or 17152 to 47872"),  # NaN, with the sign taken off
        (False, "007f eeee 80", "bytes of levels"),
        (False, "80ff eeee", "step code 65408"),
        (False, "ff42 eeee", "step code 17151"),
        (False, "01bb eeee", "step code 47873"),
        (True, "0100", "last byte is zero"),
        (True, "ffffffff ffffffff ffffff", "at most 10 can be needed"),
        (True, "ffffffff ffffffff ffff", "must be zero"),
    ],
)
def test_bad_bodies_are_refused(coded: bool, body: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        Codec((1, 1, 4), QSGD(bits=3)).unpack(coded, bytes.fromhex(body))


def test_padding_must_be_zero() -> None:
    codec = Codec((1, 1, 3), Sign())
    assert codec.unpack(False, bytes.fromhex("007f 05")).levels.tolist() == [[[1, -1, 1]]]
    with pytest.raises(WireError, match="bits after the last level"):
        codec.unpack(False, bytes.fromhex("007f 0d"))


def test_lengths_are_not_trusted() -> None:
    codec = Codec((1, 1, 1100), Nearest(step=2.5))
    for body in ("", "05", "0500 01020304", "0503" + "01" * 800):
        with pytest.raises(WireError, match=r"a number of \d+ bytes, \d+ left; it must fit, and have at most 772"):
            codec.unpack(True, bytes.fromhex(body))


LEVEL_ZERO = (1570, 1263)  # Nearest(step=1) in blocks of 4; see FORMAT.md
SILENT, FAR, NEAR, LAST = (64, 0), (64, 64), (3968, 128), (4032, 64)


@pytest.mark.parametrize("apart", [-257, -256, -255, 0, 255, 256, 257])
def test_steps_about_an_octave_apart(apart: int) -> None:
    codec = Codec((2, 1, 4), Nearest(step=1))
    step = steps.values([30000 + apart, 30000]).reshape(2, 1, 1)
    coded, body = codec.pack(Message(np.zeros((2, 1, 4), dtype=np.int16), step))
    assert coded
    assert len(body) == (5 if -256 <= apart < 256 else 6)  # 9 bits and next to none, or 15 and 6
    assert steps.codes(codec.unpack(coded, body).step) == [30000 + apart, 30000]


def test_steps_are_told_in_one_way() -> None:
    codec = Codec((4, 1, 4), Nearest(step=1))
    frequency, _, start = tables.intervals(Nearest(step=1), 4)[0]
    assert (frequency, start) == LEVEL_ZERO

    def unpack(*blocks: tuple[tuple[int, int], int, int]) -> list[int]:
        x = 0
        for kind, place, many in reversed(blocks):
            x = x * many + place
            for f, c in [LEVEL_ZERO] * (4 if kind != SILENT else 0) + [kind]:
                x = x // f * 4096 + c + x % f
        return steps.codes(codec.unpack(True, x.to_bytes((x.bit_length() + 7) // 8, "little")).step)

    none, first, last = (SILENT, 0, 1), steps.FIRST, steps.LAST
    assert unpack(none, (NEAR, 0, 512), none, (LAST, 9000, 30721)) == [0, first + 9000 - 256, 0, first + 9000]
    assert unpack(none, none, (NEAR, 511, 512), (LAST, 0, 30721)) == [0, 0, first + 255, first]
    assert unpack(none, none, (FAR, 256, 30721), (LAST, 0, 30721)) == [0, 0, first + 256, first]
    assert unpack(none, none, (FAR, 30720, 30721), none) == [0, 0, last, 0]
    for blocks in (
        ((FAR, 255, 30721), (LAST, 0, 30721)),  # near, told as far
        ((NEAR, 255, 512), (LAST, 0, 30721)),  # below the smallest step
        ((NEAR, 257, 512), (LAST, 30720, 30721)),  # beyond the largest
        ((NEAR, 256, 512), none),  # near to nothing
    ):
        with pytest.raises(WireError, match="codes within an octave, and only they, are near"):
            unpack(none, none, *blocks)


@pytest.mark.parametrize("body", ["0000807f 0000803f", "0000c07f 0000803f", "000080ff 0000803f"])
def test_exact_values_must_be_finite(body: str) -> None:
    codec = Codec((1, 1, 2), Exact())
    with pytest.raises(WireError, match="not finite"):
        codec.unpack(False, bytes.fromhex(body))
    with pytest.raises(InputError, match="finite"):
        codec.pack(Message(np.frombuffer(bytes.fromhex(body), "<f4").reshape(1, 1, 2), np.ones((1, 1, 1), np.float32)))


@pytest.mark.parametrize("quantizer", [Sign(), Exact()])
def test_what_has_no_code_is_not_read_as_coded(quantizer: Quantizer) -> None:
    with pytest.raises(WireError, match="not coded"):
        Codec((1, 1, 2), quantizer).unpack(True, b"")


@pytest.mark.parametrize("quantizer", [TopK(1), RandK(1)])
def test_compressors_stay_in_the_simulator(quantizer: Quantizer) -> None:
    with pytest.raises(InputError, match=r"k=1\) stays in the simulator; the wire carries QSGD, Nearest, Sign"):
        Codec((1, 1, 2), quantizer)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="P is 0; it must be a whole number"):
        Codec((0, 1, 2), Exact())
    with pytest.raises(InputError, match=r"shape is \(1, 2\); models have shape \(P, C, 2D\)"):
        Codec((1, 2), Exact())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="block 3 does not divide the vector length 4"):
        Codec((1, 1, 4), Nearest(block=3))


def test_messages_that_no_quantizer_makes_are_not_packed() -> None:
    codec, signs = Codec((1, 1, 2), QSGD(bits=2)), Codec((1, 1, 2), Sign())

    def message(levels: list[int], step: float) -> Message:
        return Message(np.array([[levels]], dtype=np.int16), np.array([[[step]]], dtype=np.float32))

    with pytest.raises(InputError, match="level 4; this quantizer's reach from -3 to 3"):
        codec.pack(message([0, 4], 1))
    with pytest.raises(InputError, match="block 0 has a zero step and levels that are not"):
        codec.pack(message([0, 1], 0))
    for step in (-1, np.nan, np.inf, 1e-30, 1e30, 1 + 2**-9):
        with pytest.raises(InputError, match="neither 0 nor 2\\^-60 to 2\\^60 in nine bits"):
            codec.pack(message([0, 1], step))
    with pytest.raises(InputError, match=r"levels \(1, 1, 3\), steps \(1, 1, 1\); they must be \(1, 1, 2\)"):
        codec.pack(message([0, 1, 0], 1))
    for levels, step in (([0, 1], 1), ([1, -1], 0), ([2, 0], 1)):
        with pytest.raises(InputError, match="signs are -1 or 1"):
            signs.pack(message(levels, step))


@given(blocks=st.integers(1, 40), length=st.integers(1, 1300))
def test_every_element_is_in_one_number(blocks: int, length: int) -> None:
    numbers = list(plan(blocks, length))
    seen = [(part.block, element) for parts in numbers for part in parts for element in range(part.first, part.stop)]
    assert seen == [(block, element) for block in range(blocks) for element in range(length)]
    assert all(1 <= sum(part.stop - part.first for part in parts) <= 512 for parts in numbers)
    assert all([part.last for part in parts] == [False] * (len(parts) - 1) + [True] for parts in numbers)


@given(alphabet=st.integers(2, 511), data=st.data())
def test_fixed_width_by_hand(alphabet: int, data: st.DataObject) -> None:
    symbols = data.draw(st.lists(st.integers(0, alphabet - 1), max_size=30))
    width = fixed.width(alphabet)
    number = sum(symbol << (width * place) for place, symbol in enumerate(symbols))
    body = fixed.pack(np.array(symbols, dtype=np.int16), alphabet)
    assert body == number.to_bytes(fixed.size(len(symbols), alphabet), "little")
    assert fixed.unpack(body, len(symbols), alphabet).tolist() == symbols
