"""Frames of every codec and kind, and contracts: what is on the wire between nodes of different versions."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import omkl
from omkl import noise, wire
from omkl.compressors import Sign
from omkl.node.role import Role
from omkl.node.settings import Timing
from omkl.quantizers import Exact, Message
from omkl.wire import Codec, steps
from tests.oracles import arithmetic
from tests.wire_cases import CODECS, NAMES, layout

FILE = Path(__file__).with_name("wire.json")
SEED, BOOT, ROUND, MESSAGES = 0xBEEF, 7, 1234, 6


def messages(codec: Codec) -> list[Message]:
    """Return messages that a codec carries: steps near each other and far apart, levels small and large, silence."""
    key = noise.key(CODECS.index(codec), "oracle")
    return [_message(codec, noise.fold(key, number)) for number in range(MESSAGES)]


def _message(codec: Codec, key: noise.Key) -> Message:
    count = int(np.prod(codec.shape))
    words = noise.words(key, 3 * count).astype(np.int64)
    if isinstance(codec.quantizer, Exact):
        values = (words[:count] - 2**31) / 2**28
        return codec.quantizer.quantize(values.astype(np.float32).reshape(codec.shape), None)
    sign = isinstance(codec.quantizer, Sign)
    length, most = (codec.shape[2], 1) if sign else layout(codec)
    blocks = (*codec.shape[:2], codec.shape[2] // length)
    middle = steps.FIRST + words[0] % (steps.LAST - steps.FIRST - 40)
    codes = np.where(words[1 : 1 + int(np.prod(blocks))] % 5 == 0, 0, middle + words[1 : 1 + int(np.prod(blocks))] % 40)
    # Most levels are zero, some one, fewer two, as a quantizer's; in some messages all are as frequent.
    drawn = words[count : 2 * count]
    falling = sum((drawn % 2 ** (k + words[0] % 3) == 0).astype(np.int64) for k in range(1, 9))
    size = np.minimum(most, drawn % (most + 1) if words[2] % 3 == 0 else falling)
    levels = np.where(words[:count] % 2, size, -size)
    if sign:
        levels = np.where(words[:count] % 2, 1, -1)
    levels = np.where(np.repeat(codes, length) == 0, 0, levels).astype(np.int16)
    return Message(levels.reshape(codec.shape), steps.values(codes.tolist()).reshape(blocks))


def gossip(codec: Codec) -> list[str]:
    """Return the frames of a codec's messages, in hexadecimal."""
    return [wire.write_gossip(codec, BOOT, ROUND, message, SEED).hex() for message in messages(codec)]


def others() -> dict[str, str]:
    """Return frames of the other kinds."""
    hidden = arithmetic.normals("hidden", 2, 1, 5).astype(np.float32)
    sender = BOOT, ROUND
    frames = {
        "hello": wire.write_hello(*sender, "a contract\n", None),
        "hello, known": wire.write_hello(*sender, "a contract\n", (3, 77)),
        "ask": wire.write_ask(*sender, None),
        "ask, have": wire.write_ask(*sender, (3, 77)),
        "snapshot": wire.write_snapshot(*sender, hidden),
        "kept": wire.write_kept(*sender, hidden),
    }
    return {name: frame.hex() for name, frame in frames.items()}


def contracts() -> dict[str, str]:
    """Return the contracts of the presets of 0.1, and of what else a contract tells of."""
    rows = arithmetic.normals("rows", 20, 2).astype(np.float32)
    small: dict[str, Any] = {"kernels": omkl.gaussian(0.5, 1), "features": 8, "sigma": "median"}
    calibrated = omkl.Gossip(
        **small, basis=omkl.Basis(rank=6, rows=20), quantizer=omkl.Nearest(2.5), common_weights=True, pace=omkl.Pace(8)
    )
    methods = {
        "paper": (omkl.paper(), None, False),
        "softmax": (omkl.Gossip(loss=omkl.Softmax(classes=3), orthogonal=True), None, True),
        "calibrated": (calibrated, rows, False),
        "calibrated, standardized": (calibrated, rows.astype(np.float64), True),
    }
    return {
        name: Role(
            network="n", id="a", index=0, method=method, inputs=2, seed=3, neighbors={}, timing=Timing(),
            calibration=sample, standardize=standardize,
        ).contract()
        for name, (method, sample, standardize) in methods.items()
    }  # fmt: skip


def told() -> dict[str, Any]:
    """Return all of it as it is today."""
    frames = dict(zip(NAMES, map(gossip, CODECS), strict=True))
    return {"version": wire.VERSION, "gossip": frames, "others": others(), "contracts": contracts()}


def frozen() -> dict[str, Any]:
    """Return all of it as it was frozen."""
    read: dict[str, Any] = json.loads(FILE.read_text())
    return read


def freeze() -> None:
    """Write all of it as it is today."""
    FILE.write_text(json.dumps(told(), indent=1) + "\n")
