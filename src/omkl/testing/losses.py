"""Checks for losses, and targets that suit one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.losses import Loss
from omkl.testing.running import (
    Check,
    Report,
    close,
    frozen,
    on_jax,
    on_strict,
    require,
    require_members,
    require_value,
    run,
    unharmed,
)

Floats = npt.NDArray[Any]

H = 1e-5  # of a difference quotient, in float64


def check_loss(loss: Loss) -> Report:
    """Return what was checked of a loss; raise ``Failed`` with a line for every check that it fails.

    Examples
    --------
    >>> import omkl
    >>> omkl.testing.check_loss(omkl.Huber()).skipped
    {}
    """
    return run(loss, LOSS)


def has_the_members(loss: Loss) -> None:
    """Require that a loss has all that the protocol lists."""
    require_members(loss, Loss, "loss")


def is_its_settings(loss: Loss) -> None:
    """Require that two losses of equal settings are equal, and can be made from them."""
    require_value(loss)


def has_shapes(loss: Loss) -> None:
    """Require that values and scores have no axis of outputs, slopes one, and curvatures two."""
    f, y = outputs(loss)
    lead, c = f.shape[:-1], f.shape[-1]
    shapes = {"value": lead, "derivative": (*lead, c), "curvature": (*lead, c, c), "score": lead}
    for name, wanted in shapes.items():
        found = np.shape(getattr(loss, name)(f, y))
        require(found == wanted, f"{name} has shape {found} for outputs {f.shape}; it must be {wanted}; see losses.py")


def slopes_are_those_of_the_value(loss: Loss) -> None:
    """Require that ``derivative`` is that of ``value``, and ``curvature`` that of ``derivative``."""
    f, y = (part.astype(np.float64) for part in outputs(loss))
    for c in range(f.shape[-1]):
        e = np.zeros_like(f)
        e[..., c] = H
        for name, below in (("derivative", loss.value), ("curvature", loss.derivative)):
            slope = (below(f + e, y) - below(f - e, y)) / (2 * H)
            close(getattr(loss, name)(f, y)[..., c], slope, f"{name} is not that of a small difference", atol=1e-6)


def keeps_its_bounds(loss: Loss) -> None:
    """Require that slopes stay within ``lipschitz``, and curvatures between zero and ``smoothness``."""
    f, y = (part.astype(np.float64) for part in outputs(loss))
    for scale in (0.1, 1, 30):
        slope = float(np.linalg.norm(loss.derivative(scale * f, y), axis=-1).max())
        rule = "state a larger bound, or math.inf where there is none"
        require(slope <= loss.lipschitz * (1 + 1e-9), f"a slope is {slope:.4g}, lipschitz {loss.lipschitz:.4g}; {rule}")
        bends = np.linalg.eigvalsh(loss.curvature(scale * f, y))
        require(
            bends.max() <= loss.smoothness * (1 + 1e-9),
            f"a curvature is {bends.max():.4g}, smoothness {loss.smoothness:.4g}; {rule}",
        )
        require(bends.min() >= -1e-9, f"a curvature is {bends.min():.4g}; learners need a convex loss; take another")


def survives_large_outputs(loss: Loss) -> None:
    """Require that slopes stay finite where outputs are far off."""
    f, y = outputs(loss)
    for far in (1e4, 1e15):
        good = np.isfinite(loss.derivative((far * f).astype(np.float32), y)).all()
        require(good, f"the slope at outputs of {far:g} is not finite; it must be; use exp(-abs(x)), not exp(x)")


def leaves_its_input_alone(loss: Loss) -> None:
    """Require that computing writes into no argument."""
    f, y = frozen(outputs(loss))
    for name in ("value", "derivative", "curvature", "score"):
        unharmed(lambda name=name: getattr(loss, name)(f, y), name)  # type: ignore[misc]


def is_the_same_on_strict_arrays(loss: Loss) -> None:
    """Require that array-api-strict gives the same numbers."""
    _same_elsewhere(loss, on_strict, "array_api_strict")


def is_the_same_under_jit(loss: Loss) -> None:
    """Require that JAX gives the same numbers when it compiles the loss."""
    _same_elsewhere(loss, on_jax, "jax.jit")


def _same_elsewhere(loss: Loss, there: Any, where: str) -> None:
    def every(f: Any, y: Any) -> Any:
        functions = loss.value, loss.derivative, loss.curvature, loss.score
        return (*(function(f, y) for function in functions), loss.decide(f))

    given = outputs(loss)
    found, wanted = there(every, *given), every(*given)
    for name, mine, its in zip(("value", "derivative", "curvature", "score", "decide"), found, wanted, strict=True):
        if not np.isnan(its).all():  # regression has no score
            close(mine, its, f"{name} differs under {where}; take functions from omkl.arrays.namespace")


def outputs(loss: Loss, count: int = 30) -> tuple[Floats, Floats]:
    """Return outputs and targets of a loss, ``(count, C)`` in float32."""
    rng = np.random.default_rng(5)
    y = targets(loss, rng, (count,))
    return (2 * rng.normal(size=y.shape)).astype(np.float32), y


def targets(loss: Loss, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return targets that a loss takes, ``(*shape, C)``: it says itself which labels it can encode."""
    several = getattr(loss, "outputs", 1)
    if several > 1:
        return loss.encode(rng.normal(size=(*shape, several)))
    classes = getattr(loss, "classes", None) or 3
    for labels in (rng.choice([-1, 1], size=shape), rng.permuted(np.resize(np.arange(classes), shape))):
        try:
            return loss.encode(labels)
        except InputError:
            continue
    return loss.encode(rng.normal(size=shape))


LOSS: tuple[Check, ...] = (
    has_the_members,
    is_its_settings,
    has_shapes,
    slopes_are_those_of_the_value,
    keeps_its_bounds,
    survives_large_outputs,
    leaves_its_input_alone,
    is_the_same_on_strict_arrays,
    is_the_same_under_jit,
)
"""The checks of ``check_loss``, by themselves."""
