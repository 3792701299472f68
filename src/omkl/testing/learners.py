"""Checks for learners."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl import algorithm
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.learners import Learner, Memory, Rule
from omkl.losses import Logistic, Loss, Softmax, Squared
from omkl.testing.running import (
    Check,
    Report,
    another_global_seed,
    close,
    frozen,
    leaves,
    mapped_back,
    on_jax,
    on_strict,
    require,
    require_members,
    require_value,
    run,
    same,
    unharmed,
)

NODES, SEEDS, KERNELS, OUTPUTS, WIDTH = 3, 2, 2, 3, 4
STEPS = 400
LOSSES: tuple[Loss, ...] = (Logistic(), Squared(), Softmax(classes=3))

Floats = npt.NDArray[np.float32]


class Samples(NamedTuple):
    """What a learner is given: of every node and seed a model, features and a target, and the basis of all."""

    theta: Array
    z: Array
    y: Array
    spectrum: Array


def check_learner(learner: Learner) -> Report:
    """Return what was checked of a learner; raise ``Failed`` with a line for every check that it fails.

    Examples
    --------
    >>> import omkl
    >>> len(omkl.testing.check_learner(omkl.AdaGrad()).passed) > 5
    True
    """
    return run(learner, LEARNER)


def has_the_members(learner: Learner) -> None:
    """Require that a learner has all that the protocol lists."""
    require_members(learner, Rule, "learner")
    prior = learner.has_prior
    require(isinstance(prior, bool), f"has_prior is {prior!r}; it says whether a prior replaces lambda; write False")


def is_its_settings(learner: Learner) -> None:
    """Require that two learners of equal settings are equal, and can be made from them."""
    require_value(learner)


def remembers_arrays(learner: Learner) -> None:
    """Require that the memory is a tuple of float32 arrays, in front of whose axes are those of the nodes and seeds."""
    given = samples()
    memory = _start(learner, given)
    require(isinstance(memory, tuple), f"init returns {type(memory).__name__}; a memory is a tuple; return (array,)")
    for part in leaves(memory):
        found = getattr(part, "dtype", type(part).__name__)
        require(found == np.float32, f"the memory has {found}; it is float32; start from namespace(theta).zeros_like")
        leads = part.shape[:2] == given.theta.shape[:2]
        rule = f"its first axes are those of theta, {given.theta.shape[:2]}; see no_samples in learners/rules.py"
        require(leads, f"the memory has shape {part.shape}; {rule}")


def keeps_its_shapes(learner: Learner) -> None:
    """Require that models and memory have the same shapes and types after a sample as before."""
    given = samples()
    before = (given.theta, _start(learner, given))
    after = _two(learner, given)
    require(len(list(leaves(after))) == len(list(leaves(before))), "update returns another number of arrays than init")
    for old, new in zip(leaves(before), leaves(after), strict=True):
        now = (getattr(new, "shape", None), getattr(new, "dtype", type(new).__name__))
        rule = "a simulation carries it through a loop, which needs one shape and type; keep those of init"
        require(now == (old.shape, old.dtype), f"{old.shape} {old.dtype} became {now[0]} {now[1]}; {rule}")


def nodes_are_alone(learner: Learner) -> None:
    """Require that many nodes and seeds at once give what each gives by itself."""
    given = samples()
    together = _two(learner, given)
    rule = "nodes together differ from a node alone; broadcast over the axes before (P, C, n), and reduce over none"
    for j in range(NODES):
        for s in range(SEEDS):
            own = Samples(given.theta[j, s], given.z[j, s], given.y[j, s], given.spectrum[s])
            alone = _two(learner, own)
            close(alone, mapped_back(lambda part, at=(j, s): part[at], together), rule)


def depends_on_its_arguments_alone(learner: Learner) -> None:
    """Require that the same arguments give the same models, whatever was asked before."""
    given = samples()
    rule = "a second call gives other models; what a learner remembers is in its memory; keep nothing in the object"
    with another_global_seed(1):
        first = _two(learner, given)
    _two(learner, given._replace(theta=-2 * given.theta))
    with another_global_seed(2):
        same(first, _two(learner, given), rule)


def leaves_its_input_alone(learner: Learner) -> None:
    """Require that a step writes into no argument."""
    given = samples()
    memory = frozen(_start(learner, given))
    unharmed(lambda: _step(learner, frozen(given), memory), "update")
    unharmed(lambda: _start(learner, frozen(given)), "init")


def learns(learner: Learner) -> None:
    """Require that it brings the loss down on each kind of task that it meets."""
    for loss in LOSSES:
        before, after = _course(learner, loss)
        rule = "it must fall; follow -gradient, and lower the rate if it overshoots"
        good = np.isfinite(after) and after < before
        require(good, f"the {loss.name} loss went from {before:.4g} to {after:.4g} in {STEPS} samples; {rule}")


def is_the_same_on_strict_arrays(learner: Learner) -> None:
    """Require that array-api-strict gives the same models."""
    _same_elsewhere(learner, on_strict, "array_api_strict")


def is_the_same_under_jit(learner: Learner) -> None:
    """Require that JAX gives the same models when it compiles the learner."""
    _same_elsewhere(learner, on_jax, "jax.jit")


def _same_elsewhere(learner: Learner, there: Any, where: str) -> None:
    given = samples()
    found = there(lambda *parts: _two(learner, Samples(*parts)), *given)
    rule = "one text serves all libraries; take functions from omkl.arrays.namespace, and no `if` on values"
    close(found, _two(learner, given), f"models or memory differ under {where}; {rule}")


def samples() -> Samples:
    """Return models, features, targets and the spectrum of a basis, for some nodes and seeds."""
    rng = np.random.default_rng(0)
    shape = (NODES, SEEDS)
    theta = rng.normal(size=(*shape, KERNELS, OUTPUTS, WIDTH)).astype(np.float32)
    z = rng.normal(size=(*shape, KERNELS, WIDTH)).astype(np.float32)
    y = np.eye(OUTPUTS, dtype=np.float32)[rng.integers(OUTPUTS, size=shape)]
    return Samples(theta, z, y, rng.uniform(0.1, 1, size=(SEEDS, KERNELS, WIDTH)).astype(np.float32))


def _start(learner: Learner, given: Samples) -> Memory:
    memory: Memory = learner.init(given.theta, given.spectrum)
    return memory


def _step(learner: Learner, given: Samples, memory: Memory, loss: Loss = LOSSES[-1]) -> tuple[Array, Memory]:
    """Return models and memory after a sample, all kernels weighing the same."""
    theta, z, y, _ = given
    f = algorithm.predict(theta, theta[..., 0, 0] * 0, z).kernel_outputs
    made = algorithm.learn(theta, memory, f, z, y, loss, 0.01, learner)
    good = isinstance(made, tuple) and len(made) == 2
    require(good, f"update returns {type(made).__name__}; it must return the models and the memory: (theta, memory)")
    return made


def _two(learner: Learner, given: Samples) -> tuple[Array, Memory]:
    """Return models and memory after two samples."""
    theta, memory = _step(learner, given, _start(learner, given))
    return _step(learner, given._replace(theta=theta), memory)


def _course(learner: Learner, loss: Loss) -> tuple[float, float]:
    """Return the loss of the first model and of the last, on what they were learned from."""
    rng = np.random.default_rng(3)
    c = getattr(loss, "classes", None) or 1
    truth, inputs = rng.normal(size=(c, WIDTH)), rng.normal(size=(STEPS, WIDTH)).astype(np.float32) / 2
    f = inputs @ truth.T
    y = np.sign(f) if isinstance(loss, Logistic) else f if c == 1 else np.eye(c)[f.argmax(axis=-1)]
    y = y.astype(np.float32)
    zeros = np.zeros((1, c, WIDTH), np.float32)
    spectrum = np.full((1, WIDTH), 0.25, np.float32)
    given = Samples(zeros, inputs[:1], y[0], spectrum)
    try:
        memory = _start(learner, given)
    except InputError as error:
        raise AssertionError(f"init refuses a model of {WIDTH} coefficients ({error}); check a smaller block") from None
    theta: Array = zeros
    for k in range(STEPS):
        theta, memory = _step(learner, Samples(theta, inputs[k : k + 1], y[k], spectrum), memory, loss)
    before, after = (float(loss.value(inputs @ model[0].T, y).mean()) for model in (zeros, theta))
    return before, after


LEARNER: tuple[Check, ...] = (
    has_the_members,
    is_its_settings,
    remembers_arrays,
    keeps_its_shapes,
    nodes_are_alone,
    depends_on_its_arguments_alone,
    leaves_its_input_alone,
    learns,
    is_the_same_on_strict_arrays,
    is_the_same_under_jit,
)
"""The checks of ``check_learner``, by themselves."""
