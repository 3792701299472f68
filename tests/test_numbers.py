"""Methods in two, a skeleton and numbers: other numbers compile nothing, and give what they give by themselves."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import omkl
from omkl.methods import Mixing
from omkl.simulator import engine, numbers
from omkl.topology import build
from omkl.wire import message_bytes

ROUNDS, NODES = 30, 4
COMPILED = "/jax/core/compile/backend_compile_duration"

NEWTON = omkl.Gossip(learner=omkl.Newton(prior=10.0, forget=0.95), gamma=0.3, quantizer=omkl.Nearest(2.0))


@pytest.fixture(autouse=True)
def never_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "is_small", lambda *_: False)


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    events: Counter[str] = Counter()
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: events.update([event]))
    return events


def stream() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(ROUNDS, NODES, 2)).astype(np.float32)
    return X, np.sign(X[..., 0] * X[..., 1])


def run(method: omkl.Gossip, **more: Any) -> Any:
    """Return a run by JAX, which ``pooled`` asks for."""
    return omkl.simulate(stream(), "ring", method=method, pooled=True, **more)


SETTINGS: list[tuple[omkl.Gossip, dict[str, Any]]] = [
    (omkl.paper(), {"eta": 0.5}),
    (omkl.paper(), {"gamma": 0.1}),
    (omkl.paper(), {"regularization": 0.01}),
    (omkl.paper(), {"weight_rate": None, "eta": 2.0, "gamma": 0.5}),
    (omkl.recommended(), {"gamma": 0.3}),
    (omkl.recommended(), {"momentum": 0.2}),
    (omkl.recommended(), {"learner": omkl.Pooled(priors=(300, 10))}),
    (omkl.recommended(), {"quantizer": omkl.Nearest(1.5)}),
    (omkl.recommended(), {"weight_rate": 0.5}),
    (omkl.recommended(), {"reach": omkl.Reach(most=3)}),
    (omkl.recommended(), {"kernels": omkl.gaussian(0.5, 1, 2, 4, 8)}),
    (omkl.recommended(), {"pace": omkl.Budget(30)}),
    (omkl.recommended(clip=0.1), {"clip": 0.2, "gamma": 0.5, "pace": omkl.Budget(40)}),
    (NEWTON, {"learner": omkl.Newton(prior=3.0, forget=0.9)}),
    (omkl.paper(sending=omkl.Sampled(2.0)), {"sending": omkl.Sampled(1.0, floor=0.2)}),
]


@pytest.mark.parametrize(("method", "changes"), SETTINGS)
def test_other_numbers_compile_nothing(method: omkl.Gossip, changes: dict[str, Any], counted: Counter[str]) -> None:
    first = run(method)
    before = counted[COMPILED]
    assert before > 0
    second = run(method.replace(**changes))
    assert counted[COMPILED] == before
    assert np.abs(second.loss - first.loss).max() > 1e-6


def test_what_is_structure_compiles_anew(counted: Counter[str]) -> None:
    run(omkl.paper())
    for other in ({"quantizer": omkl.QSGD(bits=4)}, {"momentum": 0.5}, {"clip": 0.3}, {"loss": "smoothed_hinge"}):
        before = counted[COMPILED]
        run(omkl.paper(**other))
        assert counted[COMPILED] > before


@pytest.mark.parametrize(
    "method",
    [omkl.paper(), omkl.recommended(clip=0.1), omkl.frugal(), NEWTON, omkl.Choco(sending="triggered"), omkl.Local()],
)
def test_a_method_is_put_together_again(method: Any) -> None:
    method = method.on(build("ring", NODES)) if isinstance(method, omkl.Gossip) else method
    skeleton, found = numbers.split(method)
    hash(skeleton)
    assert all(one.dtype == np.float32 for one in found)
    back = numbers.joined(skeleton, found)
    for name in ("members", "views", "sent", "told", "loss_gap_cap", "dithered", "objective"):
        if hasattr(method, name):
            assert getattr(back, name) == getattr(method, name), name
    assert back.eta == pytest.approx(method.eta)
    assert back.hedge_rate == pytest.approx(method.hedge_rate)


def test_skeletons_differ_by_structure_alone() -> None:
    def skeleton(**changes: Any) -> Any:
        made, found = numbers.split(omkl.recommended(**changes).on(build("ring", NODES)))
        return made, [one.shape for one in found]

    assert repr(skeleton()[0]).startswith("Gossip(")
    assert skeleton() == skeleton(gamma=0.1, momentum=0.3, quantizer=omkl.Nearest(2.0), reach=omkl.Reach(4))
    assert skeleton() != skeleton(momentum=0.0)
    assert skeleton() != skeleton(quantizer=None)
    assert skeleton() != skeleton(learner=omkl.Pooled(priors=(100,)))
    assert skeleton() != skeleton(learner=omkl.Pooled(forget=0.99))
    assert skeleton(loss=omkl.Huber(delta=1.0)) != skeleton(loss=omkl.Huber(delta=2.0))


@dataclass(frozen=True, kw_only=True)
class Sluggish(Mixing):
    """A rule that asks its numbers in Python."""

    patience: float = 2.0
    name = "sluggish"

    def step_in(self, round_: Any) -> Any:
        return 0.5 * self.step if self.patience > 1 else self.step


def test_parts_of_ones_own_are_structure() -> None:
    method = omkl.paper(mixing=Sluggish(gamma=0.4))
    skeleton, _ = numbers.split(method)
    assert skeleton.mixing == method.mixing
    np.testing.assert_allclose(run(method).loss, run(omkl.paper(gamma=0.2)).loss, atol=1e-6)


@pytest.mark.parametrize("n", [20, 120, 400])
@pytest.mark.parametrize("step", [0.1, 0.7, 2.5, 10.0])
def test_a_step_brings_its_costs(n: int, step: float) -> None:
    method = omkl.Gossip(features=n // 2, quantizer=omkl.Nearest(step))
    skeleton, found = numbers.split(method)
    vector = np.random.default_rng(0).normal(size=(7, 1, 1, n)).astype(np.float32)

    def sized(found: Any) -> Any:
        quantizer = numbers.joined(skeleton, found).channel.quantizer
        message = quantizer.quantize(jnp.asarray(vector), None)
        return message, message_bytes(message, quantizer)

    message, size = jax.jit(sized)(found)
    expected = method.channel.quantizer.quantize(vector, None)
    np.testing.assert_array_equal(message.levels, expected.levels)
    np.testing.assert_array_equal(size, message_bytes(expected, method.channel.quantizer))
