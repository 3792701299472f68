import zlib
from binascii import crc_hqx

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl import wire
from omkl.errors import InputError
from omkl.quantizers import Message, Nearest
from omkl.wire import CheckError, Codec, Kind, WireError
from tests.wire_cases import CODECS, NAMES, equal, messages

SENDER = 7, 3
every_codec = pytest.mark.parametrize("codec", CODECS, ids=NAMES)
boots = st.integers(0, 2**16 - 1)
rounds = st.integers(0, 2**32 - 1)
contracts = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"), max_size=200)


def example() -> tuple[Codec, bytes]:
    codec = Codec((3, 1, 40), Nearest(step=2.5))
    vector = np.sin(np.arange(120, dtype=np.float32) ** 2).reshape(3, 1, 40)
    return codec, wire.write_gossip(codec, *SENDER, codec.quantizer.quantize(vector, None), seed=0x1234)


@every_codec
@given(data=st.data(), boot=boots, round_=rounds, seed=boots)
def test_gossip_comes_back(codec: Codec, data: st.DataObject, boot: int, round_: int, seed: int) -> None:
    message = data.draw(messages(codec))
    frame = wire.write_gossip(codec, boot, round_, message, seed)
    assert wire.peek(frame)[1:] == (-1, round_ % 256)
    assert wire.peek(frame).kind in (Kind.CODED, Kind.FIXED)
    assert equal(wire.read_gossip(codec, frame, (boot, round_), seed), message)
    other = data.draw(st.integers(1, 2**16 - 1))
    for sender, wrong in (
        ((boot, round_), seed ^ other),
        ((boot ^ other, round_), seed),
        ((boot, round_ ^ other), seed),
    ):
        with pytest.raises(CheckError):
            wire.read_gossip(codec, frame, sender, wrong)


@given(round_=rounds, ahead=st.integers(-128, 127))
def test_a_round_is_known_by_its_lowest_byte(round_: int, ahead: int) -> None:
    assert wire.nearest((round_ + ahead) % 256, round_) == round_ + ahead


@given(
    boot=boots,
    round_=rounds,
    contract=contracts,
    have=st.none() | st.tuples(boots, rounds),
    settings=st.binary(min_size=8, max_size=8),
)
def test_hello_and_ask_come_back(
    boot: int, round_: int, contract: str, have: tuple[int, int] | None, settings: bytes
) -> None:
    hello, ask = wire.write_hello(boot, round_, contract, have, settings), wire.write_ask(boot, round_, have)
    assert wire.peek(hello) == (Kind.HELLO, boot, round_)
    assert wire.peek(ask) == (Kind.ASK, boot, round_)
    assert wire.read_hello(hello) == (contract, have, settings)
    assert wire.read_ask(ask) == have
    copy = 0 if have is None else 6
    assert (len(hello), len(ask)) == (18 + copy + len(contract), 9 + copy)


def test_a_snapshot_comes_back(rng: np.random.Generator) -> None:
    hidden = rng.normal(size=(3, 2, 40)).astype(np.float32)
    frame = wire.write_snapshot(7, 3, hidden)
    assert len(frame) == 9 + 4 * 240 + 4
    there = wire.read_snapshot((3, 2, 40), frame)
    assert there.dtype == np.float32
    np.testing.assert_array_equal(there, hidden)
    with pytest.raises(WireError, match="960 bytes of float32; shape \\(3, 2, 41\\) takes 984"):
        wire.read_snapshot((3, 2, 41), frame)


def test_every_truncation_and_every_flipped_bit_is_refused() -> None:
    codec, frame = example()
    for length in range(len(frame)):
        with pytest.raises(WireError):
            wire.read_gossip(codec, frame[:length], SENDER, 0x1234)
    for bit in range(8 * len(frame)):
        number = int.from_bytes(frame, "little") ^ (1 << bit)
        with pytest.raises(WireError):
            wire.read_gossip(codec, number.to_bytes(len(frame), "little"), SENDER, 0x1234)


@given(at=st.integers(0, 200), burst=st.integers(1, 2**16 - 1))
def test_every_burst_of_sixteen_bits_is_refused(at: int, burst: int) -> None:
    codec, frame = example()
    number = int.from_bytes(frame, "big") ^ (burst << min(at, 8 * len(frame) - 16))
    with pytest.raises(WireError):
        wire.read_gossip(codec, number.to_bytes(len(frame), "big"), SENDER, 0x1234)


@given(element=st.integers(0, 119), bit=st.integers(0, 31))
def test_a_copy_that_drifted_by_a_bit_is_found(element: int, bit: int) -> None:
    codec = Codec((3, 1, 40), Nearest(step=2.5))
    hidden = np.cos(np.arange(120, dtype=np.float32)).reshape(3, 1, 40)
    message = codec.quantizer.quantize(hidden[::-1].copy(), None)
    frame = wire.write_gossip(codec, *SENDER, message, wire.digest(hidden))
    copy = hidden.copy()
    copy.reshape(-1).view(np.uint32)[element] ^= np.uint32(1 << bit)
    assert equal(wire.read_gossip(codec, frame, SENDER, wire.digest(hidden)), message)
    with pytest.raises(CheckError, match="the copies of the hidden state differ; resync"):
        wire.read_gossip(codec, frame, SENDER, wire.digest(copy))


def test_digest_by_hand() -> None:
    hidden = np.array([[[1.0, -2.5]]], dtype=np.float32)
    assert wire.digest(hidden) == zlib.crc32(bytes.fromhex("0000803f 000020c0")) & 0xFFFF
    assert wire.digest(np.asfortranarray(np.arange(6, dtype=np.float32).reshape(1, 2, 3))) == wire.digest(
        np.arange(6, dtype=np.float32)
    )


readers = st.sampled_from(
    [
        *(lambda data, codec=codec: wire.read_gossip(codec, data, (0, 0), 0) for codec in CODECS),
        wire.read_hello,
        wire.read_ask,
        lambda data: wire.read_snapshot((1, 1, 2), data),
        lambda data: wire.read_kept((1, 1, 2), data),
    ]
)


@given(reader=readers, first=st.integers(0x20, 0x27), rest=st.binary(max_size=60), mend=st.booleans())
def test_any_bytes_are_refused_or_read(reader: object, first: int, rest: bytes, mend: bool) -> None:
    frame = bytes([first]) + rest
    if mend:
        frame += crc_hqx(frame, 0).to_bytes(2, "big")
    assert callable(reader)
    try:
        found = reader(frame)
    except WireError:
        return
    assert mend
    assert found is None or isinstance(found, Message | str | tuple | np.ndarray)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("", "0 bytes; a frame of its kind has at least 4"),
        ("24" + "00" * 2, "3 bytes; a frame of its kind has at least 4"),
        ("21" + "00" * 7, "8 bytes; a frame of its kind has at least 9"),
        ("11" + "00" * 8, "version 1; this node speaks 2; run the same omkl on both"),
        ("20" + "00" * 8, "kind 0; the kinds are 1 HELLO, 2 ASK, 3 SNAPSHOT, 4 CODED, 5 FIXED, 6 KEPT"),
        ("27" + "00" * 8, "kind 7"),
    ],
)
def test_strange_headers_are_refused(frame: str, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        wire.peek(bytes.fromhex(frame))


def test_frames_of_another_kind_are_refused() -> None:
    codec, frame = example()
    with pytest.raises(WireError, match="a frame of kind CODED; expected HELLO"):
        wire.read_hello(frame)
    kept = wire.write_kept(1, 2, np.ones((1, 1, 2), dtype=np.float32))
    with pytest.raises(WireError, match="a frame of kind KEPT; expected SNAPSHOT"):  # it is not the sender's
        wire.read_snapshot((1, 1, 2), kept)
    with pytest.raises(WireError, match="a frame of kind ASK; expected CODED or FIXED"):
        wire.read_gossip(codec, wire.write_ask(1, 2, None), (1, 2), 0)


def mended(frame: bytes) -> bytes:
    return frame[:-2] + crc_hqx(frame[:-2], 0).to_bytes(2, "big")


def test_bad_bodies_are_refused() -> None:
    hello, ask = wire.write_hello(1, 2, "a" * wire.MOST_CONTRACT), wire.write_ask(1, 2, (3, 4))
    snapshot = wire.write_snapshot(1, 2, np.ones((1, 1, 2), dtype=np.float32))
    with pytest.raises(WireError, match="a contract of 4097 bytes; at most 4096, printable ASCII"):
        wire.read_hello(mended(hello[:-2] + b"a" + hello[-2:]))
    for strange in (b"\x00", b"\r", b"\x7f", b"\xc3\xa9"):
        with pytest.raises(WireError, match="printable ASCII"):
            wire.read_hello(mended(hello[:16] + strange + hello[-2:]))
    for body in (b"", b"\x01", b"a", b"\x00" + bytes(7), b"\x06", b"\x06" + bytes(13)):
        with pytest.raises(WireError, match=r"that begins with (nothing|..); it says 0 or 6 bytes of us, and 8 of its"):
            wire.read_hello(mended(hello[:7] + body + hello[-2:]))
    for cut in (1, 5):
        with pytest.raises(WireError, match="bytes in an ask; it holds 6, or none"):
            wire.read_ask(mended(ask[: 7 + cut] + ask[-2:]))
    with pytest.raises(WireError, match="7 bytes of float32; shape"):
        wire.read_snapshot((1, 1, 2), mended(snapshot[:-1]))
    with pytest.raises(CheckError, match="CRC-32 is wrong"):
        wire.read_snapshot((1, 1, 2), mended(snapshot[:7] + b"\x01" + snapshot[8:]))
    with pytest.raises(WireError, match="not finite"):
        wire.read_snapshot((1, 1, 2), mended(snapshot[:7] + bytes.fromhex("0000807f") + snapshot[11:]))


def test_what_cannot_be_sent_is_refused() -> None:
    for contract in ("a" * 4097, "\u00e9", "a\tb", "\ud800"):
        with pytest.raises(InputError, match=r"a contract of \d+ characters; at most 4096, printable ASCII"):
            wire.write_hello(1, 2, contract)
    with pytest.raises(InputError, match="a digest of 7 bytes; it must have 8"):
        wire.write_hello(1, 2, "", None, bytes(7))
    for boot, round_ in ((-1, 0), (2**16, 0), (0, 2**32), (0, -1)):
        with pytest.raises(InputError, match="a boot is 0 to 2\\^16 - 1, a round 0 to 2\\^32 - 1"):
            wire.write_ask(boot, round_, None)
        with pytest.raises(InputError, match=f"boot {boot}, round {round_};"):
            wire.write_ask(0, 0, (boot, round_))
    with pytest.raises(InputError, match="not finite; the model has diverged"):
        wire.write_snapshot(1, 2, np.full((1, 1, 2), np.nan, dtype=np.float32))
