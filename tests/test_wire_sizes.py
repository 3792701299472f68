import math

import numpy as np
import pytest
from benchmarks.wire import sent

from omkl import wire
from omkl.compressors import RandK, Sign, TopK
from omkl.methods import Gossip
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer
from omkl.wire import Codec, message_bytes, steps
from tests.conftest import Library

ON_THE_WIRE: list[Quantizer] = [
    *(QSGD(bits=bits, rescale=rescale) for bits in (1, 2, 3, 4, 8) for rescale in (False, True)),
    QSGD(bits=3, block=20),
    *(Nearest(step=step) for step in (0.5, 1, 1.5, 2, 2.5, 3)),
    Nearest(step=2.5, block=10),
    Sign(),
    Exact(),
]
on_the_wire = pytest.mark.parametrize("quantizer", ON_THE_WIRE, ids=str)


def packed(message: Message, quantizer: Quantizer) -> np.ndarray:
    """Return the lengths of the frames of messages, shape (..., P, C, 2D)."""
    codec = Codec(message.levels.shape[-3:], quantizer)
    levels = message.levels.reshape(-1, *message.levels.shape[-3:])
    step = message.step.reshape(-1, *message.step.shape[-3:])
    lengths = [len(wire.write_gossip(codec, 0, 0, Message(*one), 0)) for one in zip(levels, step, strict=True)]
    return np.array(lengths, dtype=np.float32).reshape(message.levels.shape[:-3])


def noise(rng: np.random.Generator, quantizer: Quantizer, shape: tuple[int, ...]) -> Message:
    vectors = rng.standard_normal(shape) * np.exp2(rng.standard_normal((*shape[:-1], 1)) - 5)
    return quantizer.quantize(vectors.astype(np.float32), rng.random(shape, dtype=np.float32))


@on_the_wire
@pytest.mark.parametrize("shape", [(3, 1, 40), (3, 1, 200), (1, 3, 20), (1, 1, 1200)])
def test_noise_costs_what_it_packs_to(
    quantizer: Quantizer, shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    message = noise(rng, quantizer, (100, *shape))
    charged, true = message_bytes(message, quantizer), packed(message, quantizer)
    assert charged.dtype == np.float32
    assert charged.mean() == pytest.approx(true.mean(), rel=0.01)
    assert np.abs(charged - true).mean() <= 0.01 * true.mean()
    np.testing.assert_array_equal(charged, np.rint(charged))
    if isinstance(quantizer, Sign | Exact):
        np.testing.assert_array_equal(charged, true)


@pytest.mark.parametrize(("eta", "gamma"), [(0.01, 0.009), (1, 0.5)])
@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=1, rescale=True), Nearest(), Nearest(step=1)], ids=str)
def test_a_run_costs_what_it_packs_to(quantizer: Quantizer, eta: float, gamma: float) -> None:
    rounds = [message for _, message in sent(Gossip(eta=eta, gamma=gamma, quantizer=quantizer), rounds=40)]
    charged = np.array([message_bytes(message, quantizer) for message in rounds])
    true = np.array([packed(message, quantizer) for message in rounds])
    assert charged.mean() == pytest.approx(true.mean(), rel=0.01)
    assert np.abs(charged - true).mean() < 0.1


@pytest.mark.parametrize(("eta", "gamma"), [(0.01, 0.009), (1, 0.5)])
@pytest.mark.parametrize(("quantizer", "most"), [(QSGD(bits=3), 52), (Nearest(step=2.5), 31)], ids=str)
def test_a_message_stays_within_its_budget(quantizer: Quantizer, most: int, eta: float, gamma: float) -> None:
    run = sent(Gossip(eta=eta, gamma=gamma, quantizer=quantizer), rounds=265)
    assert np.mean([packed(message, quantizer).mean() for _, message in run if message.step.any()]) <= most


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), Nearest(), Sign(), Nearest(step=2.5, block=10)], ids=str)
def test_blocks_without_a_step(quantizer: Quantizer, rng: np.random.Generator) -> None:
    # One kernel of three is sent at a time, or two, or none.
    kernels = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]], dtype=np.float32)
    vectors = rng.standard_normal((40, 6, 3, 1, 40), dtype=np.float32) * kernels[:, :, None, None]
    message = quantizer.quantize(vectors, rng.random(vectors.shape, dtype=np.float32))
    charged, true = message_bytes(message, quantizer).mean(axis=0), packed(message, quantizer).mean(axis=0)
    np.testing.assert_allclose(charged, true, rtol=0.01)
    assert true[5] == (wire.HEADER_BYTES if not isinstance(quantizer, Sign) else wire.HEADER_BYTES + 6)


@pytest.mark.parametrize(
    "quantizer", [QSGD(bits=3), QSGD(bits=8), Nearest(), Nearest(step=2.5, block=10), Sign(), Exact()], ids=str
)
def test_any_library(quantizer: Quantizer, library: Library, rng: np.random.Generator) -> None:
    for shape in ((5, 2, 3, 1, 40), (3, 3, 1, 200), (2, 1, 1, 1200)):
        message = noise(rng, quantizer, shape)
        there = library.call(lambda levels, step: message_bytes(Message(levels, step), quantizer), *message)
        assert there.dtype == np.float32
        assert there.shape == shape[:-3]
        assert np.abs(there - message_bytes(message, quantizer)).max() <= 1  # sums round differently


def test_simulated_compressors_cost_what_they_state(library: Library) -> None:
    vector = np.ones((5, 3, 2, 40), dtype=np.float32)
    for quantizer, bits in ((TopK(3), 3 * 38), (RandK(3), 3 * 32)):
        message = quantizer.quantize(vector, vector)
        there = library.call(lambda levels, step, q=quantizer: message_bytes(Message(levels, step), q), *message)
        np.testing.assert_array_equal(there, np.full(5, 4 + math.ceil(6 * bits / 8), dtype=np.float32))


def test_costs_by_hand() -> None:
    costs = wire.costs(Nearest(step=2.5), 40)
    assert costs.levels == tuple(math.log2(4096 / f) for f in (3228, 432, 1, 1))
    assert wire.costs(Nearest(step=2.5, block=20), 40) == wire.costs(Nearest(step=2.5), 20)
    assert costs.last == math.log2(30721) + math.log2(4096 / 4032)
    assert costs.near == 9 + math.log2(4096 / 3968)
    assert costs.far == math.log2(30721) + 6
    assert costs.silent == 6
    assert costs.width == 3
    assert steps.COUNT == 30721
