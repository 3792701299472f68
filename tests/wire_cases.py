"""Codecs of every kind, and messages for them."""

import math

import numpy as np
from hypothesis import strategies as st

from omkl.compressors import Sign
from omkl.quantizers import QSGD, Exact, Message, Nearest
from omkl.wire import Codec, steps, tables

CODECS = [
    Codec((3, 1, 40), QSGD(bits=3)),
    Codec((3, 1, 40), Nearest(step=2.5)),
    Codec((1, 1, 2), Nearest(step=2.5)),
    Codec((2, 2, 4), QSGD(bits=8, rescale=True, block=2)),
    Codec((1, 1, 2), QSGD(bits=1)),
    Codec((5, 1, 8), Nearest(step=0.1, block=1)),
    Codec((3, 2, 200), Nearest(step=3)),
    Codec((14, 1, 40), QSGD(bits=3, block=20)),
    Codec((2, 1, 1100), Nearest(step=2)),
    Codec((2, 1, 9), Sign()),
    Codec((2, 1, 3), Exact()),
]
NAMES = [f"{codec.quantizer}-{codec.shape}" for codec in CODECS]


@st.composite
def messages(draw: st.DrawFn, codec: Codec) -> Message:
    """Draw a message that the codec carries, some blocks silent, some steps near each other, levels small or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if isinstance(codec.quantizer, Exact):
        values = rng.normal(size=codec.shape) * 10.0 ** draw(st.integers(-40, 30))
        return codec.quantizer.quantize(values.astype(np.float32), None)
    length, most = (codec.shape[2], 1) if isinstance(codec.quantizer, Sign) else layout(codec)
    blocks = (*codec.shape[:2], codec.shape[2] // length)
    middle = draw(st.integers(steps.FIRST + 300, steps.LAST - 300))
    code = st.one_of(st.just(0), st.integers(steps.FIRST, steps.LAST), st.integers(middle - 300, middle + 300))
    count = math.prod(blocks)
    some = draw(st.lists(code, min_size=min(8, count), max_size=count))
    codes = [some[index % len(some)] for index in range(count)]
    spread = draw(st.floats(0, 1.5)) * most
    levels = np.clip(np.rint(rng.normal(size=(len(codes), length)) * spread), -most, most).astype(np.int16)
    if isinstance(codec.quantizer, Sign):
        levels[levels == 0] = 1
    levels[np.array(codes) == 0] = 0
    return Message(levels.reshape(codec.shape), steps.values(codes).reshape(blocks))


def layout(codec: Codec) -> tuple[int, int]:
    assert isinstance(codec.quantizer, QSGD | Nearest)
    return tables.layout(codec.quantizer, codec.shape[2])


def equal(one: Message, other: Message) -> bool:
    """Return whether two messages agree in every bit, type and shape."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(one, other, strict=True)
    )
