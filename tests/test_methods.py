"""Every method through the declared protocol."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omkl import Gossip, Local, topology
from omkl.errors import InputError
from omkl.methods import METHODS, Method, Neighbors, Round
from tests.conftest import Library

J, S, C, D = 5, 3, 2, 6


def network() -> Neighbors:
    index, weights = topology.build("ring", J).neighbors()
    return Neighbors(index, weights.astype(np.float32))


def rounds(method: Method, count: int, seeds: int = S) -> list[Round]:
    rng = np.random.default_rng(0)
    shape = (J, seeds, len(method.kernels))
    return [
        Round(
            rng.normal(size=(*shape, 2 * D)).astype(np.float32),
            rng.normal(size=(J, 1, C)).astype(np.float32),
            rng.uniform(size=(*shape, C, 2 * D)).astype(np.float32) if method.dithered else None,
        )
        for _ in range(count)
    ]


@pytest.fixture(params=sorted(METHODS))
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param](features=D, eta=0.1, loss="squared")  # type: ignore[call-arg]


def test_shapes_and_names(method: Method) -> None:
    method.check()
    state = method.init(np, (J, S), C)
    before = [leaf.shape for leaf in jax.tree.leaves(state)]
    for round_ in rounds(method, 3):
        state, info = method.step(state, round_, network())
        assert info.output.shape == (J, S, C)
        assert info.loss.shape == (J, S)
        assert (info.loss > 0).all()
    assert [leaf.shape for leaf in jax.tree.leaves(state)] == before
    theta, log_weights = method.models(state)
    assert theta.shape == (J, S, len(method.kernels), C, 2 * D)
    assert log_weights.shape == (J, S, len(method.kernels))
    assert METHODS[method.name] is type(method)


def test_same_on_every_library(method: Method, library: Library) -> None:
    def play(rounds_: list[Round], network_: Neighbors) -> object:
        xp = jnp if library.jitted else library.xp
        state = method.init(xp, (J, S), C)
        for round_ in rounds_:
            state, info = method.step(state, round_, network_)
        return method.models(state), info

    args = (rounds(method, 4), network())
    (theta, log_weights), info = library.call(play, *args)
    state = method.init(np, (J, S), C)
    for round_ in args[0]:
        state, expected = method.step(state, round_, args[1])
    np.testing.assert_allclose(theta, method.models(state)[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_weights, method.models(state)[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(info.loss, expected.loss, rtol=1e-4)


def test_seeds_do_not_mix(method: Method) -> None:
    together, alone = method.init(np, (J, S), C), method.init(np, (J, 1), C)
    for round_ in rounds(method, 4):
        together, _ = method.step(together, round_, network())
        one = Round(*(None if part is None else part[:, -1:] for part in round_))
        alone, _ = method.step(alone, one, network())
    np.testing.assert_allclose(method.models(together)[0][:, -1:], method.models(alone)[0], rtol=1e-6)


def test_a_step_leaves_its_arguments_alone(method: Method) -> None:
    state = method.init(np, (J, S), C)
    copies = [leaf.copy() for leaf in jax.tree.leaves(state)]
    method.step(state, rounds(method, 1)[0], network())
    for leaf, copy in zip(jax.tree.leaves(state), copies, strict=True):
        np.testing.assert_array_equal(leaf, copy)


def test_bits_by_hand() -> None:
    # 9 bytes of header, 3 kernels, each 40 levels of 3 bits and a sign and a step of two bytes
    assert Gossip().message_bits(1) == 72 + 3 * (40 * 4 + 16) == 600
    assert Gossip(quantizer=None).message_bits(2) == 72 + 3 * 2 * 40 * 32
    assert Local().message_bits(1) == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"eta": 0}, "eta is 0; a learning rate must be positive"),
        ({"eta": float("nan")}, "eta is nan"),
        ({"gamma": 0}, r"gamma is 0; the consensus step must lie in \(0, 1\]"),
        ({"gamma": 1.5}, r"gamma is 1.5"),
        ({"gamma": float("nan")}, r"gamma is nan"),
        ({"features": 0}, "features is 0"),
        ({"kernels": ()}, "kernels is empty"),
        ({"regularization": -1}, "regularization is -1"),
        ({"weight_rate": -1}, "weight_rate is -1"),
        ({"loss": "logistc"}, "did you mean 'logistic'"),
        ({"quantizer": "nearst"}, "did you mean 'nearest'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Gossip(**settings)  # type: ignore[arg-type]


def test_no_contraction_is_refused_by_check() -> None:
    with pytest.raises(InputError, match="delta must be positive"):
        Gossip(features=100).check()
