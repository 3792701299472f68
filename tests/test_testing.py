"""The checks that users run: omkl's own pass them, and each fails on a class that breaks its rule."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import SkipTest

import numpy as np
import pytest

import omkl
from omkl import testing
from omkl.arrays import Array, namespace
from omkl.compressors import QUANTIZERS
from omkl.errors import InputError, MissingExtraError
from omkl.learners import LEARNERS, Learner, Memory, Sample
from omkl.losses import LOSSES, Loss
from omkl.methods import METHODS, Info, Method, Network, Round
from omkl.methods.local import LocalState
from omkl.quantizers import Message, Quantizer
from omkl.testing import Check, Failed, methods, running

SMALL: dict[str, Any] = {"features": 6, "eta": 0.5, "loss": "squared"}
OWN_METHODS: list[Method] = [
    omkl.Gossip(**SMALL),
    omkl.Gossip(features=6, eta=0.5, loss=omkl.Softmax(3), sending="sampled", momentum=0.3),
    omkl.recommended(basis=omkl.Landmarks(rank=8)),
    omkl.Complete(**SMALL),
    omkl.Choco(**SMALL, fresh=True),
    omkl.Local(**SMALL, learner=omkl.Newton(), weigh_first=True),
    omkl.DOMKL(**SMALL),
    omkl.AdaRaker(features=6),
]
OWN_QUANTIZERS: list[Quantizer] = [
    omkl.Exact(),
    omkl.QSGD(bits=3),
    omkl.QSGD(bits=8),
    omkl.QSGD(bits=1, rescale=True),
    omkl.QSGD(bits=3, rescale=True, block=8),
    omkl.QSGD(bits=3, block=20),
    omkl.Nearest(),
    omkl.Nearest(step=1),
    omkl.Nearest(step=3, block=10),
    omkl.Sign(),
    omkl.TopK(k=4),
    omkl.RandK(k=10),
]
OWN_LEARNERS: list[Learner] = [
    omkl.SGD(0.3),
    omkl.SGD(0.3, decay="sqrt"),
    omkl.AdaGrad(0.5),
    omkl.Newton(),
    omkl.Newton(5.0, forget=0.9),
    omkl.Newton(5.0, block=2),
    omkl.Shared(),
    omkl.Shared(forget=0.99),
    omkl.Pooled(),
]
OWN_LOSSES: list[Loss] = [
    omkl.Logistic(), omkl.SmoothedHinge(), omkl.Softmax(3), omkl.Squared(2), omkl.Huber(2, delta=0.7),
]  # fmt: skip


def each(things: list[Any], checks: tuple[Check, ...]) -> Iterator[Any]:
    for thing in things:
        for check in checks:
            yield pytest.param(check, thing, id=f"{thing}-{check.__name__}")


@pytest.mark.parametrize(
    ("check", "thing"),
    [
        *each(OWN_METHODS, testing.METHOD),
        *each(OWN_QUANTIZERS, testing.QUANTIZER),
        *each(OWN_LEARNERS, testing.LEARNER),
        *each(OWN_LOSSES, testing.LOSS),
    ],
)
def test_what_omkl_has_keeps_the_rules(check: Check, thing: Any) -> None:
    report = running.run(methods.settled(thing) if check in testing.METHOD else thing, [check])
    told = " ".join(report.skipped.values())
    assert not told or told.startswith(("weigh_first is True", "endures_faults is False"))  # and not what is missing


def test_all_that_omkl_has_is_checked() -> None:
    lists: list[tuple[list[Any], Any]] = [
        (OWN_METHODS, METHODS), (OWN_QUANTIZERS, QUANTIZERS), (OWN_LEARNERS, LEARNERS), (OWN_LOSSES, LOSSES),
    ]  # fmt: skip
    for things, known in lists:
        assert {thing.name for thing in things} == set(known)
        assert {type(thing) for thing in things} == set(known.values())


# Planted: each is right but for one thing, and a check finds it.


@dataclass(frozen=True)
class Plain(omkl.Nearest):
    """A right quantizer, of which the wrong ones below are made."""


@dataclass(frozen=True)
class Boastful(omkl.Nearest):
    def delta(self, n: int) -> float:
        return 0.9


@dataclass(frozen=True)
class Unrounded(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        levels, step = super().quantize(vector, uniforms)
        return Message(levels, step * np.float32(0.9999))


@dataclass(frozen=True)
class Dividing(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        xp = namespace(vector)
        step = xp.max(xp.abs(vector), axis=-1, keepdims=True)
        with np.errstate(all="ignore"):
            return Message(xp.astype(vector / step, xp.float32), step * (step / step))


@dataclass(frozen=True)
class Global(omkl.QSGD):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        return super().quantize(vector, np.random.uniform(size=vector.shape).astype(np.float32))


@dataclass(frozen=True)
class Crowded(omkl.Sign):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        levels, step = super().quantize(vector, uniforms)
        return Message(levels, namespace(step).max(step) + 0 * step)


@dataclass(frozen=True)
class Overwriting(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        vector *= 1
        return super().quantize(vector, uniforms)


@dataclass(frozen=True)
class Branching(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        return super().quantize(vector if vector.max() < 1e30 else 0 * vector, uniforms)


@dataclass(frozen=True)
class NumPyOnly(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        return super().quantize(np.asarray(vector), uniforms)


@dataclass(frozen=True)
class Flat(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        levels, step = super().quantize(vector, uniforms)
        return Message(levels, step[..., 0])


@dataclass(frozen=True)
class Wide(omkl.Nearest):
    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        levels, step = super().quantize(vector, uniforms)
        return Message(levels * 300, step / 256)


@dataclass(frozen=True)
class Modest(omkl.Nearest):
    """States a size that no message could have."""

    def size(self, n: int) -> int:
        return 1


class Choosy(omkl.Nearest):
    def check(self, n: int) -> None:
        raise omkl.InputError("no")


class Unequal(omkl.Nearest):
    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "seen", [])

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Step:
    """A right learner, of which the wrong ones below are made."""

    eta: float = 0.3

    name: ClassVar[str] = "step"
    has_prior: ClassVar[bool] = False

    def init(self, theta: Array, spectrum: Array | None = None) -> Memory:
        return (namespace(theta).zeros_like(theta),)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        return theta - self.eta * gradient, memory


@dataclass(frozen=True)
class Averaging(Step):
    """Its batch is not its loop."""

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        xp = namespace(theta)
        return theta - self.eta * gradient / (1 + xp.max(xp.abs(gradient))), memory


@dataclass(frozen=True)
class Remembering(Step):
    seen: list[int] = field(default_factory=list, compare=False)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        self.seen.append(1)
        return theta - self.eta / len(self.seen) * gradient, memory


@dataclass(frozen=True)
class InPlace(Step):
    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        theta -= self.eta * gradient
        return theta, memory


@dataclass(frozen=True)
class Widening(Step):
    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        return theta - np.float64(self.eta) * gradient, memory


@dataclass(frozen=True)
class Growing(Step):
    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        return super().update(theta, memory, gradient, z, sample)[0], (*memory, gradient)


@dataclass(frozen=True)
class Counting(Step):
    def init(self, theta: Array, spectrum: Array | None = None) -> Memory:
        return (namespace(theta).zeros((), dtype=theta.dtype),)


@dataclass(frozen=True)
class Climbing(Step):
    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        return theta + self.eta * gradient, memory


class Shapeless(Step):
    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> Any:
        return theta - self.eta * gradient


@dataclass(frozen=True, init=False, repr=False)
class Base(omkl.Local):
    """A right method, of which the wrong ones below are made."""

    name: ClassVar[str] = "base"


class Peeking(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after, info._replace(output=info.output + 0.5 * (inputs.y - info.output))


class Broadcasting(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        xp = namespace(after.theta)
        return after._replace(theta=xp.mean(after.theta, axis=0, keepdims=True) + 0 * after.theta), info


class MixingSeeds(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        xp = namespace(after.theta)
        return after._replace(theta=xp.mean(after.theta, axis=1, keepdims=True) + 0 * after.theta), info


class Random(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after._replace(theta=after.theta * np.float32(1 + 0.1 * np.random.uniform())), info


class Overwriter(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        state.theta[...] = state.theta
        return super().step(state, inputs, network)


class Reshaping(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after._replace(log_weights=after.log_weights[..., :1]), info


class Lossless(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after, info._replace(loss=info.loss[..., None])


class Fractional(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after, info._replace(message_bytes=info.message_bytes + 0.5)


class Single(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> Any:
        return super().step(state, inputs, network)[0]


class Numbered(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        return after, info._replace(message_bytes=40)


class Sharing(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        after, info = super().step(state, inputs, network)
        degrees = network.degrees(len(after.theta))
        share = (degrees / degrees).astype(np.float32)[:, None, None, None, None]
        return after._replace(theta=share * after.theta), info


class Grudging(Base):
    def check(self, topology: Any) -> None:
        raise omkl.InputError("no network is good enough; stay at home")


class Idle(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        return state, super().step(state, inputs, network)[1]


class Halves(Base):
    def step(self, state: LocalState, inputs: Round, network: Network) -> Any:
        return super().step(state, inputs, network)[0]


@dataclass(frozen=True)
class Steep(omkl.Squared):
    def derivative(self, f: Array, y: Array) -> Array:
        return 3 * (f - y)


@dataclass(frozen=True)
class Bounded(omkl.Squared):
    lipschitz: ClassVar[float] = 1.0


@dataclass(frozen=True)
class Concave(omkl.Squared):
    def curvature(self, f: Array, y: Array) -> Array:
        return -1.0 * super().curvature(f, y)


@dataclass(frozen=True)
class Exploding(omkl.Logistic):
    def derivative(self, f: Array, y: Array) -> Array:
        xp = namespace(f)
        with np.errstate(all="ignore"):
            e = xp.exp(-y * f)
            return -y * e / (1 + e)


def lacking(thing: Any, name: str) -> Any:
    """Return an object with all that a thing has but for one."""
    names = [one for one in dir(thing) if not one.startswith("_") and one != name]
    return SimpleNamespace(**{one: getattr(thing, one) for one in names})


PLANTED: list[tuple[Callable[[Any], Any], Any, str, str]] = [
    (testing.check_quantizer, omkl.Nearest, "has_the_members", r"Nearest is a class; .* pass Nearest\(\)"),
    (testing.check_quantizer, lacking(Plain(), "delta"), "has_the_members", "SimpleNamespace lacks delta; a quantizer"),
    (testing.check_quantizer, Unequal(), "is_its_settings", "make the class a frozen dataclass"),
    (testing.check_quantizer, Choosy(), "takes_a_length", "check refuses every length"),
    (testing.check_quantizer, Flat(), "has_levels_and_steps", r"step has shape \(20,\); it must be \(20, 'B'\)"),
    (testing.check_quantizer, Unrounded(), "sums_are_exact", "nine significant bits, .* quantizers.round_up"),
    (testing.check_quantizer, Wide(), "sums_are_exact", r"a level is \d+; 255 is the largest; clip"),
    (testing.check_quantizer, Modest(), "size_holds_its_messages", r"size\(40\) is 1, .* 1 bits tell at most 2 apart"),
    (testing.check_quantizer, Dividing(), "nothing_stays_nothing", "a vector of 0 gives level nan"),
    (testing.check_quantizer, Boastful(), "is_within_delta", r"delta\(40\) = 0.9 allows 0.1; state a smaller delta"),
    (testing.check_quantizer, Global(), "depends_on_its_arguments_alone", "take randomness from `uniforms`"),
    (testing.check_quantizer, Crowded(), "rows_are_alone", "a vector alone gives another message than among others"),
    (testing.check_quantizer, Overwriting(), "leaves_its_input_alone", "quantize writes into the arrays"),
    (testing.check_quantizer, NumPyOnly(), "is_the_same_under_jit", "TracerArrayConversionError"),
    (testing.check_quantizer, Branching(), "is_the_same_under_jit", "TracerBoolConversionError"),
    (testing.check_learner, Averaging(), "nodes_are_alone", "nodes together differ from a node alone"),
    (testing.check_learner, Remembering(), "depends_on_its_arguments_alone", "keep nothing in the object"),
    (testing.check_learner, InPlace(), "leaves_its_input_alone", "update writes into the arrays"),
    (testing.check_learner, Widening(), "keeps_its_shapes", "float32 became .* float64; a simulation carries it"),
    (testing.check_learner, Growing(), "keeps_its_shapes", "another number of arrays than init"),
    (testing.check_learner, Counting(), "remembers_arrays", r"the memory has shape \(\); its first axes are"),
    (testing.check_learner, Climbing(), "learns", r"the logistic loss went from 0.69\d+ to .* it must fall"),
    (testing.check_learner, Shapeless(), "keeps_its_shapes", "update returns ndarray; it must return the models and"),
    (testing.check_learner, lacking(Step(), "update"), "has_the_members", "lacks update; a learner has"),
    (testing.check_method, Peeking(**SMALL), "predicts_before_it_learns", "depends on the target of that round"),
    (testing.check_method, Broadcasting(**SMALL), "hears_neighbors_alone", "reach others by network.mix alone"),
    (testing.check_method, MixingSeeds(**SMALL), "seeds_are_alone", "seeds together differ from a seed alone"),
    (testing.check_method, Random(**SMALL), "depends_on_its_arguments_alone", "take randomness from inputs.uniforms"),
    (testing.check_method, Overwriter(**SMALL), "leaves_its_input_alone", "step writes into the arrays"),
    (testing.check_method, Reshaping(**SMALL), "keeps_its_shapes", r"\(5, 2, 3\) float32 became \(5, 2, 1\) float32"),
    (testing.check_method, Lossless(**SMALL), "has_shapes", r"info.loss: shape \(5, 2, 1\); it must be \(5, 2\) for 5"),
    (testing.check_method, Fractional(**SMALL), "has_shapes", "info.message_bytes has 0.5; bytes are whole"),
    (testing.check_method, Sharing(**SMALL), "lives_alone", "a network of .* gives inf or nan"),
    (
        testing.check_method,
        Grudging(**SMALL),
        "takes_a_graph",
        "check refuses a path and the complete graph",
    ),
    (testing.check_method, Idle(**SMALL), "learns", r"the loss went from .* it must fall"),
    (testing.check_method, Halves(**SMALL), "has_shapes", "step returns LocalState; it must return the state and an"),
    (testing.check_method, lacking(omkl.Local(), "step"), "has_the_members", "lacks step; a method has name, endures"),
    (testing.check_loss, Steep(), "slopes_are_those_of_the_value", "derivative is not that of a small difference"),
    (testing.check_loss, Bounded(), "keeps_its_bounds", r"a slope is .*, lipschitz 1; state a larger bound"),
    (testing.check_loss, Concave(), "keeps_its_bounds", "a curvature is -2; learners need a convex loss"),
    (testing.check_loss, Exploding(), "survives_large_outputs", "is not finite; it must be"),
]


@pytest.mark.parametrize(("check", "wrong", "rule", "text"), PLANTED, ids=lambda one: getattr(one, "__name__", None))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_planted_mistake_is_found(check: Callable[[Any], Any], wrong: Any, rule: str, text: str) -> None:
    family = {f"check_{name.lower()}": getattr(testing, name) for name in ("METHOD", "QUANTIZER", "LEARNER", "LOSS")}
    with pytest.raises(Failed, match=rf"fails \d+ of \d+ checks:\n(.*\n)*  {rule}: .*{text}"):
        running.run(wrong, [one for one in family[check.__name__] if one.__name__ == rule])


def test_what_they_are_made_of_is_right() -> None:
    assert not testing.check_quantizer(Plain()).skipped
    assert not testing.check_learner(Step()).skipped
    assert "runs_in_a_simulation" in testing.check_method(Base(**SMALL)).passed


def test_every_check_finds_something() -> None:
    """But for those that need JAX or array-api-strict, of which one plants serve all."""
    found = {(check.__name__, rule) for check, _, rule, _ in PLANTED}
    missed = [
        f"{name}.{check.__name__}"
        for name in ("METHOD", "QUANTIZER", "LEARNER", "LOSS")
        for check in getattr(testing, name)
        if (f"check_{name.lower()}", check.__name__) not in found
    ]
    shared = ("has_the_members", "is_its_settings", "on_strict_arrays", "under_jit", "leaves_its_input_alone")
    assert [one for one in missed if not one.endswith(shared)] == ["METHOD.runs_in_a_simulation", "LOSS.has_shapes"]


def test_all_that_fails_is_told_at_once() -> None:
    with pytest.raises(Failed, match="Boastful fails 1 of 13 checks:\n  is_within_delta: "):
        testing.check_quantizer(Boastful())
    with pytest.raises(Failed, match=r"int fails 1 of 13 checks:\n  has_the_members: int lacks name, dithered"):
        testing.check_quantizer(3)  # type: ignore[arg-type]
    with pytest.raises(
        Failed, match=r"(?s)^SGD fails .* SGD is a class; .*; pass SGD\(\); the other checks need them, .*run$"
    ):
        testing.check_learner(omkl.SGD)  # type: ignore[arg-type]


@pytest.mark.parametrize("nodes", [2, 500])  # with NumPy, and compiled
@pytest.mark.parametrize(
    ("method", "text"),
    [
        (Single(**SMALL), r"\.step returns no pair \(state, Info\); omkl.testing.check_method\(method\) says more"),
        (Numbered(**SMALL), r"\.step gives message_bytes 40; .* omkl.testing.check_method\(method\) says more"),
    ],
)
def test_a_simulation_points_to_the_checks(method: Any, text: str, nodes: int) -> None:
    with pytest.raises(InputError, match=text):
        omkl.simulate((np.zeros((40, nodes, 1)), np.ones((40, nodes))), "path", method=method)


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(running, "import_module", missing)
    report = testing.check_quantizer(omkl.Sign())
    assert len(report.passed) == 11
    assert str(report).startswith(
        "11 checks passed; skipped is_the_same_on_strict_arrays: array-api-strict is not inst"
    )
    assert "pip install 'omkl[sim]'" in report.skipped["is_the_same_under_jit"]

    def lacks_jax(*given: Any, **settings: Any) -> Any:
        raise MissingExtraError("jax", "sim")

    monkeypatch.setattr(omkl, "simulate", lacks_jax, raising=False)
    assert "omkl[sim]" in testing.check_method(omkl.Local(**SMALL)).skipped["runs_in_a_simulation"]
    with pytest.raises(SkipTest, match="array-api-strict"):  # pytest's parametrize skips it
        testing.QUANTIZER[-2](omkl.Sign())
