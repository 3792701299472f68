"""Coverage-guided fuzzing of every reader of the wire format: bytes give WireError or a frame that writes back alike.

It needs atheris, which is no dependency of the project: run it in an environment of its own with atheris, numpy and, to
try the compiled coder beside the one in Python, numba.

    PYTHONPATH=src python fuzz/fuzz_frames.py CORPUS -max_total_time=600 -max_len=400

CORPUS is a folder, filled with valid frames before the start. The first byte of an input picks reader and codec, the
second whether the check is put right before reading: no fuzzer guesses a CRC, so most inputs would end there.
"""

import struct
import sys
from binascii import crc_hqx
from pathlib import Path

import atheris
import numpy as np

with atheris.instrument_imports(include=["omkl.wire"]):
    from omkl import wire
    from omkl.wire.codec import Levels
from omkl.algorithm import absorb
from omkl.compressors import Sign
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer

SEED = 0xBEEF
BOOT = 7
SHAPES: list[tuple[tuple[int, int, int], Quantizer]] = [
    ((3, 1, 40), QSGD(bits=3)),
    ((3, 1, 40), Nearest(step=2.5)),
    ((2, 2, 4), QSGD(bits=8, rescale=True, block=2)),
    ((1, 1, 2), Nearest(step=0.1)),
    ((2, 3, 200), Nearest(step=3)),
    ((1, 1, 1100), Nearest(step=2.5)),
    ((2, 1, 6), Sign()),
    ((2, 1, 3), Exact()),
]
CODECS = [wire.Codec(shape, quantizer) for shape, quantizer in SHAPES]
PLAIN = {
    pick: Levels(*SHAPES[pick]) for pick, (_, quantizer) in enumerate(SHAPES) if isinstance(quantizer, QSGD | Nearest)
}
SNAPSHOT = (2, 1, 3)


def corpus(folder: Path) -> None:
    """Write valid frames of every kind and codec, some with blocks whose step is zero."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    frames: list[tuple[int, bytes]] = []
    for pick, codec in enumerate(CODECS):
        for zeros in (0.0, 0.5, 1.0):
            scale = np.exp2(rng.normal(size=(*codec.shape[:2], 1))) * (rng.random((*codec.shape[:2], 1)) >= zeros)
            vector = (rng.normal(size=codec.shape) * scale).astype(np.float32)
            message = codec.quantizer.quantize(vector, rng.random(codec.shape, dtype=np.float32))
            frames.append((pick, wire.write_gossip(codec, BOOT, 3, message, SEED)))
    others = len(CODECS)
    frames += [
        (others, wire.write_hello(7, 3, text, known)) for text in ("", "features 20\n") for known in (None, (1, 2))
    ]
    frames += [(others + 1, wire.write_ask(7, 3, have)) for have in (None, (6, 2))]
    for number, write in enumerate((wire.write_snapshot, wire.write_kept)):
        frames += [(others + 2 + number, write(7, 3, np.zeros(SNAPSHOT, dtype=np.float32)))]
    for number, (pick, frame) in enumerate(frames):
        for mend in (0, 1):
            (folder / f"seed-{number}-{mend}").write_bytes(bytes([pick, mend]) + frame)


def plain(pick: int, data: bytes) -> Message | None:
    """Return what the coder in Python makes of a body, whose branches the fuzzer sees; None where it refuses it."""
    try:
        return PLAIN[pick].unpack(wire.peek(data).kind == wire.Kind.CODED, data[2:-2])
    except wire.WireError:
        return None


def gossip(pick: int, data: bytes) -> None:
    """Read a gossip frame and write it again: the same bytes, or shorter ones that say the same.

    Where numba is installed the codec is compiled: it must read and refuse what the one in Python does.
    """
    codec = CODECS[pick]
    whole = len(data) >= wire.HEADER_BYTES and wire.peek(data).kind in wire.GOSSIP
    other = plain(pick, data) if whole and pick in PLAIN else None
    try:
        message = wire.read_gossip(codec, data, (BOOT, data[1] if whole else 0), SEED)
    except wire.WireError as error:
        if other is not None and not isinstance(error, wire.CheckError):
            raise AssertionError(f"the coder in Python reads what the compiled one refuses: {error}") from error
        raise
    if pick in PLAIN:
        assert other is not None
        same(message, other)
        hidden = np.zeros(codec.shape, dtype=np.float32)
        if codec.add(wire.peek(data).kind == wire.Kind.CODED, data[2:-2], hidden):
            assert hidden.tobytes() == np.asarray(absorb(np.zeros_like(hidden), message)).tobytes()
    kind, _, round_ = wire.peek(data)
    again = wire.write_gossip(codec, BOOT, round_, message, SEED)
    if wire.peek(again).kind == kind:
        assert again == data
    else:
        assert kind == wire.Kind.FIXED
        assert len(again) < len(data)
        same(message, wire.read_gossip(codec, again, (BOOT, round_), SEED))


def same(one: Message, other: Message) -> None:
    """Refuse messages that differ in a bit."""
    assert one.levels.tobytes() == other.levels.tobytes()
    assert one.step.tobytes() == other.step.tobytes()


def read(pick: int, data: bytes) -> None:
    """Read with the reader of that number, and write what it returned."""
    if pick < len(CODECS):
        return gossip(pick, data)
    if pick == len(CODECS):
        again = wire.write_hello(*wire.peek(data)[1:], *wire.read_hello(data))
    elif pick == len(CODECS) + 1:
        have = wire.read_ask(data)
        again = wire.write_ask(*wire.peek(data)[1:], have)
    elif pick == len(CODECS) + 2:
        hidden = wire.read_snapshot(SNAPSHOT, data)
        again = wire.write_snapshot(*wire.peek(data)[1:], hidden)
    else:
        hidden = wire.read_kept(SNAPSHOT, data)
        again = wire.write_kept(*wire.peek(data)[1:], hidden)
    assert again == data
    return None


def mended(frame: bytes) -> bytes:
    """Return a gossip frame with the check that it should have, which covers what is not sent of its head."""
    head = struct.pack("<BHI", frame[0], BOOT, frame[1])
    return frame[:-2] + crc_hqx(frame[2:-2], crc_hqx(head, SEED)).to_bytes(2, "big")


def one_input(data: bytes) -> None:
    """Try one input."""
    if len(data) < 2:
        return
    pick, mend, frame = data[0] % (len(CODECS) + 4), data[1] & 1, data[2:]
    if mend and len(frame) > 3:
        frame = mended(frame) if pick < len(CODECS) else frame[:-2] + crc_hqx(frame[:-2], 0).to_bytes(2, "big")
    try:
        read(pick, frame)
    except wire.WireError:
        return


if __name__ == "__main__":
    corpus(Path(sys.argv[1]))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
