"""Checks for quantizers."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.quantizers import MOST_LEVELS, Message, Quantizer, restore
from omkl.testing.running import (
    Check,
    Report,
    another_global_seed,
    frozen,
    on_jax,
    on_strict,
    require,
    require_members,
    require_value,
    run,
    same,
    unharmed,
)

LENGTHS = (40, 24, 8, 3, 1, 120)
DRAWS = 400  # of the dither, over which an error is averaged
MANY = 2000  # vectors, whose different results are counted
FLIPPED = 0.005  # of the levels that the rounding of another library may move, and by one

Floats = npt.NDArray[np.float32]


def check_quantizer(quantizer: Quantizer) -> Report:
    """Return what was checked of a quantizer; raise ``Failed`` with a line for every check that it fails.

    Examples
    --------
    >>> import omkl
    >>> len(omkl.testing.check_quantizer(omkl.Nearest(2.5)).passed) > 5
    True
    """
    return run(quantizer, QUANTIZER)


def has_the_members(quantizer: Quantizer) -> None:
    """Require that a quantizer has all that the protocol lists."""
    require_members(quantizer, Quantizer, "quantizer")


def is_its_settings(quantizer: Quantizer) -> None:
    """Require that two quantizers of equal settings are equal, and can be made from them."""
    require_value(quantizer)


def takes_a_length(quantizer: Quantizer) -> None:
    """Require that it takes vectors of a usual length, with delta between 0 and 1 and a whole number of bits."""
    require(lengths(quantizer), f"check refuses every length of {LENGTHS}; it must take one; accept more lengths")
    for n in lengths(quantizer):
        delta, size = quantizer.delta(n), quantizer.size(n)
        require(0 < delta <= 1, f"delta({n}) is {delta}; it must lie in (0, 1]; let check({n}) refuse that length")
        whole = isinstance(size, int) and size > 0
        require(whole, f"size({n}) is {size!r}; it must be a whole number of bits above zero; use math.ceil")


def has_levels_and_steps(quantizer: Quantizer) -> None:
    """Require that a message has a level for every number and a step for every block."""
    for n in lengths(quantizer):
        levels, step = quantized(quantizer, vectors(n))
        wanted = vectors(n).shape
        require(levels.shape == wanted, f"levels have shape {levels.shape}; those of the vectors are {wanted}")
        blocks = step.shape[-1] if step.ndim == len(wanted) else 0
        good = step.shape[:-1] == wanted[:-1] and blocks > 0 and n % blocks == 0
        rule = f"it must be {(*wanted[:-1], 'B')} with B blocks that divide {n}; keep the last axis (keepdims=True)"
        require(good, f"step has shape {step.shape}; {rule}")
        require(step.dtype == np.float32, f"step is {step.dtype}; it must be float32; use the vector's dtype")


def sums_are_exact(quantizer: Quantizer) -> None:
    """Require that a step times a level is a float32 without rounding, so that all neighbors hold the same copy."""
    for n in lengths(quantizer):
        levels, step = quantized(quantizer, vectors(n))
        good = np.isfinite(step).all() and (step >= 0).all()
        require(good, "a step is negative or not finite; steps are lengths; pass them through quantizers.round_up")
        if np.all(step == 1) and levels.dtype == np.float32:
            continue  # exact numbers
        bits = np.ascontiguousarray(step).view(np.uint32) & np.uint32(0x7FFF)
        rule = "neighbors add up steps times levels, and must come to the same sums; a step may have nine significant "
        rule += "bits, so that no product is rounded; pass it through quantizers.round_up"
        require(not bits.any(), f"a step is {step[bits > 0].ravel()[0]!r}; {rule}" if bits.any() else "")
        require(
            np.issubdtype(levels.dtype, np.integer),
            f"levels are {levels.dtype}; with a step other than 1 they are whole; return xp.astype(levels, xp.int16)",
        )
        most = int(np.abs(levels.astype(np.int64)).max())
        require(most <= MOST_LEVELS, f"a level is {most}; {MOST_LEVELS} is the largest; clip the levels")


def size_holds_its_messages(quantizer: Quantizer) -> None:
    """Require that messages of size(n) bits can be told apart: of many vectors come no more results than these name."""
    for n in lengths(quantizer):
        v = np.concatenate([scale * many(n) for scale in (1.0, 1e-3, 1e3)]).astype(np.float32)
        u = np.broadcast_to(dither(1, n), v.shape)  # a receiver knows the dither
        found = restore(quantizer.quantize(v, u if quantizer.dithered else None))
        apart = len({row.tobytes() for row in np.asarray(found, dtype=np.float32)})
        size = quantizer.size(n)
        require(
            apart <= 2 ** min(size, 32),
            f"size({n}) is {size}, and {len(v):,} vectors give {apart:,} different results; {size} bits tell at most "
            f"{2 ** min(size, 32):,} apart; count the bits of the levels and of the step (STEP_BITS)",
        )


def nothing_stays_nothing(quantizer: Quantizer) -> None:
    """Require that of a zero vector, and of one that is next to zero, nothing is sent."""
    for n in lengths(quantizer):
        for scale in (0.0, 1e-38, 1e-25):
            levels, step = quantized(quantizer, np.full((2, n), scale, dtype=np.float32))
            silent = not np.asarray(levels).any() and np.isfinite(step).all()
            rule = "levels must be 0 then, and no number inf or nan; divide by xp.where(step > 0, step, 1)"
            require(silent, f"a vector of {scale:g} gives level {levels.ravel()[0]}, step {step.ravel()[0]}; {rule}")


def is_within_delta(quantizer: Quantizer) -> None:
    """Require that E|Q(v) - v|^2 <= (1 - delta) |v|^2, for vectors of many kinds."""
    for n in lengths(quantizer):
        bound = 1 - quantizer.delta(n)
        for v in kinds(n):
            u = dither(DRAWS if quantizer.dithered else 1, n)
            sent = quantizer.quantize(np.broadcast_to(v, u.shape), u if quantizer.dithered else None)
            error = restore(sent).astype(np.float64) - v
            power = float((v.astype(np.float64) ** 2).sum())
            squares = (error**2).sum(axis=-1)
            slack = 5 * squares.std() / len(u) ** 0.5 + 1e-5 * power
            lost = squares.mean() / power
            rule = f"delta({n}) = {1 - bound:.4g} allows {bound:.4g}; state a smaller delta, or fit the step better"
            require(squares.mean() <= bound * power + slack, f"{lost:.4g} of the energy of {_short(v)} is lost; {rule}")


def depends_on_its_arguments_alone(quantizer: Quantizer) -> None:
    """Require that the same vector and dither give the same message, whatever was asked before."""
    n = lengths(quantizer)[0]
    v, u = vectors(n), dither(len(vectors(n)), n) if quantizer.dithered else None
    rule = "a second call gives another message; nodes must be able to repeat it; take randomness from `uniforms`"
    with another_global_seed(1):
        first = quantizer.quantize(v, u)
    quantizer.quantize(-3 * v[::-1], u)
    with another_global_seed(2):
        same(first, quantizer.quantize(v, u), rule)


def rows_are_alone(quantizer: Quantizer) -> None:
    """Require that a vector's message does not depend on those beside it, or on how many axes are in front."""
    n = lengths(quantizer)[0]
    v, u = vectors(n), dither(len(vectors(n)), n) if quantizer.dithered else None
    together = quantizer.quantize(v, u)
    rule = "a vector alone gives another message than among others; reduce over the last axis only (axis=-1)"
    for k in range(len(v)):
        alone = quantizer.quantize(v[k], None if u is None else u[k])
        same(alone, Message(together.levels[k], together.step[k]), rule)
    shape = (2, len(v) // 2, 1, n)
    deep = quantizer.quantize(v.reshape(shape), None if u is None else u.reshape(shape))
    same(restore(deep).reshape(v.shape), restore(together), rule)


def leaves_its_input_alone(quantizer: Quantizer) -> None:
    """Require that quantizing writes into no argument."""
    n = lengths(quantizer)[0]
    v, u = frozen((vectors(n), dither(len(vectors(n)), n)))
    unharmed(lambda: quantizer.quantize(v, u if quantizer.dithered else None), "quantize")


def is_the_same_on_strict_arrays(quantizer: Quantizer) -> None:
    """Require that array-api-strict gives the same levels, but for a few that rounding flips."""
    _same_elsewhere(quantizer, on_strict, "array_api_strict")


def is_the_same_under_jit(quantizer: Quantizer) -> None:
    """Require that JAX gives the same levels when it compiles the quantizer, but for a few that rounding flips."""
    _same_elsewhere(quantizer, on_jax, "jax.jit")


def _same_elsewhere(quantizer: Quantizer, there: Any, where: str) -> None:
    n = lengths(quantizer)[0]
    rng = np.random.default_rng(1)
    v = (rng.normal(size=(50, n)) * np.exp(5 * rng.normal(size=(50, 1)))).astype(np.float32)
    u = dither(50, n)
    given = (v, u) if quantizer.dithered else (v,)
    levels, step = there(lambda v, u=None: quantizer.quantize(v, u), *given)
    here = quantizer.quantize(v, u if quantizer.dithered else None)
    apart = np.abs(np.asarray(levels, dtype=np.float64) - here.levels)
    rule = "one text serves all libraries; take functions from omkl.arrays.namespace, and no `if` on values"
    flips = float((apart > 0).mean())
    require(flips <= FLIPPED, f"{flips:.1%} of the levels differ under {where}; {rule}")
    good = np.allclose(step, here.step, rtol=2**-8)
    require(good, f"steps differ under {where} by more than their last bit; {rule}")


def lengths(quantizer: Quantizer) -> list[int]:
    """Return the usual lengths that a quantizer takes."""
    return [n for n in LENGTHS if _takes(quantizer, n)]


def _takes(quantizer: Quantizer, n: int) -> bool:
    try:
        quantizer.check(n)
    except InputError:
        return False
    return True


def quantized(quantizer: Quantizer, v: Floats) -> tuple[Array, Array]:
    """Return levels and steps of vectors."""
    message = quantizer.quantize(v, dither(len(v), v.shape[-1]) if quantizer.dithered else None)
    require(
        isinstance(message, tuple) and len(message) == 2,
        f"quantize returns {type(message).__name__}; it must return Message(levels, step)",
    )
    return np.asarray(message[0]), np.asarray(message[1])


@cache
def vectors(n: int) -> Floats:
    """Return an even number of vectors of length n, of many sizes."""
    rng = np.random.default_rng(n)
    return (rng.normal(size=(20, n)) * 10.0 ** rng.uniform(-6, 4, size=(20, 1))).astype(np.float32)


@cache
def many(n: int) -> Floats:
    """Return very many vectors of length n."""
    return np.random.default_rng(n).normal(size=(MANY, n)).astype(np.float32)


@cache
def kinds(n: int) -> tuple[Floats, ...]:
    """Return vectors that are hard in different ways: noise, one entry, equal ones, a few large ones, a decay."""
    rng = np.random.default_rng(n)
    one, few = np.zeros(n), 1e-3 * rng.normal(size=n)
    one[n // 3], few[:: max(n // 3, 1)] = -0.7, 1.0
    found = [rng.normal(size=n), one, np.ones(n), few, 0.7 ** np.arange(n), rng.standard_cauchy(size=n)]
    found += [1e4 * rng.normal(size=n), 1e-6 * rng.normal(size=n), np.where(np.arange(n) % 2, 1.0, -0.49)]
    return tuple(v.astype(np.float32) for v in found)


def dither(count: int, n: int) -> Floats:
    """Return uniforms for so many vectors."""
    return np.asarray(noise.dither(noise.fold(noise.key(0, "testing"), np.arange(count)[:, None]), (n,)))


def _short(v: Floats) -> str:
    return f"({', '.join(f'{x:.3g}' for x in v[:4])}{', ...' * (len(v) > 4)})"


QUANTIZER: tuple[Check, ...] = (
    has_the_members,
    is_its_settings,
    takes_a_length,
    has_levels_and_steps,
    sums_are_exact,
    size_holds_its_messages,
    nothing_stays_nothing,
    is_within_delta,
    depends_on_its_arguments_alone,
    rows_are_alone,
    leaves_its_input_alone,
    is_the_same_on_strict_arrays,
    is_the_same_under_jit,
)
"""The checks of ``check_quantizer``, by themselves."""
