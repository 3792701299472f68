"""An accelerator's fast path: a round of ``Gossip`` as one kernel, a tile of nodes at a time.

XLA runs a round as several kernels, and each reads and writes the models of all nodes. Here a row, the P models of a
node under one seed, is read once, goes through all phases of ``omkl.algorithm`` in registers, and is written once. A
test holds it to the engine's rounds.

The kernel is written in Pallas for Triton. Where JAX has that no more, ``knows`` says no and the engine's rounds serve.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from omkl import noise, wire
from omkl.algorithm import State
from omkl.losses import Logistic
from omkl.methods import Gossip, Info, Method
from omkl.methods.plain import is_plain
from omkl.quantizers import LARGEST_STEP, QSGD, SMALLEST_STEP, Exact, Quantizer
from omkl.simulator.networks import LONGEST_LIST, Lists
from omkl.simulator.waves import half_wave

try:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton
except ImportError:
    pl = triton = None  # type: ignore[assignment]

ROWS = 2  # of a tile
WARPS = 1
MOST_NUMBERS = 2**31  # of all models: the kernel counts them in 32 bits
WIDEST = 256  # numbers in a row: they are to stay in registers


class Shape(NamedTuple):
    """How rows are made up: nodes times seeds of them, each P kernels of n = 2D numbers."""

    nodes: int
    seeds: int
    kernels: int
    n: int

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.nodes * self.seeds

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.kernels * self.n


@cache
def ready() -> bool:
    """Return whether there is a device for the kernel."""
    return triton is not None and "cuda" in jax.devices()[0].client.platform_version.lower()


def knows(method: Method, network: Any, outputs: int) -> bool:
    """Return whether the kernel computes this method on this network."""
    return (
        triton is not None
        and is_plain(method, (Logistic,), (QSGD, Exact))
        and outputs == 1
        and 2 * method.bank.features * len(method.bank.kernels) <= WIDEST
        and isinstance(network, Lists)
        and network.weights.ndim == 2  # not those of every seed
        and 0 < network.weights.shape[1] <= LONGEST_LIST  # each is compiled by itself
    )


def step(
    method: Any,
    state: State,
    projected: Array,
    y: Array,
    V: Array,
    key: noise.Key,
    t: Array,
    network: Any,
    measured: bool,
) -> tuple[State, Info | None]:
    """Return what ``method.step`` does, for what it ``knows``; None for the Info where it is not needed.

    ``projected`` are inputs ``(J, d)``, or angles ``(J, S, P, D)``.
    """
    nodes, seeds, kernels, _, n = state.theta.shape
    shape = Shape(nodes, seeds, kernels, n)
    inputs = projected.shape[1] if projected.ndim == 2 else 0
    if inputs:
        table = jnp.moveaxis(V[:, :kernels].reshape(seeds, shape.width // 2, -1), -1, 0)
    else:
        projected = projected[:, :, :kernels].reshape(shape.rows, shape.width // 2)
        table = jnp.zeros((1, 1, 1), jnp.float32)  # not read
    wide, narrow, single = (_floats(shape.rows, size) for size in (shape.width, kernels, 1))
    extra = (wide, single, single, single) if measured else ()
    run = pl.pallas_call(
        _kernel(method, shape, network.ids.shape[1], inputs),
        out_shape=(wide, wide, narrow, *extra),
        grid=(pl.cdiv(shape.rows, ROWS),),
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=jax.default_backend() == "cpu",
    )
    theta, hidden, log_weights, *more = run(
        state.theta.reshape(shape.rows, shape.width),
        state.hidden.reshape(shape.rows, shape.width),
        state.log_weights.reshape(shape.rows, kernels),
        projected,
        table,
        y.reshape(-1),
        key.low.reshape(-1),
        key.high.reshape(-1),
        network.ids,
        network.weights,
        t.reshape(1),
        jnp.asarray(_level_bits(method.channel.quantizer, n), dtype=jnp.float32),
    )
    before = state.log_weights
    after = State(
        theta.reshape(state.theta.shape),
        hidden.reshape(state.theta.shape),
        log_weights.reshape(state.log_weights.shape),
        (),
    )
    if not measured:
        return after, None
    mixed, output, *each = more
    loss, sizes = (part.reshape(nodes, seeds) for part in each)
    return after, Info(output.reshape(nodes, seeds, 1), loss, mixed.reshape(state.theta.shape), before, sizes)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)  # type: ignore[no-untyped-call]


def _kernel(method: Any, shape: Shape, neighbors: int, inputs: int) -> Callable[..., None]:
    """Return the kernel of one tile."""
    lam, eta, rate = method.regularization, method.learner.eta, method.hedge_rate

    def kernel(
        theta_in: Any, hidden_in: Any, log_weights_in: Any, projected: Any, table: Any, targets: Any, low: Any,
        high: Any, ids: Any, weights: Any, time: Any, costs: Any, theta_out: Any, hidden_out: Any, log_weights_out: Any,
        *more: Any,
    ) -> None:  # fmt: skip
        place = pl.program_id(0) * ROWS + jnp.arange(ROWS)
        lanes = jnp.arange(pl.next_power_of_2(shape.width))
        real, within = place < shape.rows, lanes < shape.width
        rows = jnp.minimum(place, shape.rows - 1)
        node, seed = rows // shape.seeds, rows % shape.seeds
        mask = real[:, None] & within[None, :]
        per = _PerKernel(lanes // shape.n, shape.kernels)

        def wide(ref: Any, row: Array) -> Array:
            return triton.load(ref.at[row[:, None], lanes[None, :]], mask=mask, other=0.0)

        hidden = wide(hidden_in, rows)
        pull = jnp.zeros_like(hidden)
        for k in range(neighbors):
            other, weight = (triton.load(ref.at[node, k]) for ref in (ids, weights))
            pull += weight[:, None] * (wide(hidden_in, other * shape.seeds + seed) - hidden)
        theta = wide(theta_in, rows) + method.mixing.step * pull

        now = noise.fold(noise.Key(*(triton.load(ref.at[rows])[:, None] for ref in (low, high))), time[0])
        levels, steps = _emit(method, theta - hidden, now, lanes, shape.width, per)
        sent = levels * per.spread(steps)
        triton.store(hidden_out.at[place[:, None], lanes[None, :]], hidden + sent, mask=mask)

        half = shape.n // 2
        feature, quarter = lanes // shape.n * half + lanes % half, (lanes % shape.n) // half
        if inputs:
            angles = jnp.zeros_like(theta)
            for k in range(inputs):
                x = triton.load(projected.at[node, k])
                angles += x[:, None] * triton.load(table.at[k, seed[:, None], feature[None, :]], mask=mask, other=0.0)
        else:
            angles = triton.load(projected.at[rows[:, None], feature[None, :]], mask=mask, other=0.0)
        z = jnp.where(within[None, :], half_wave(angles, quarter[None, :]) * half**-0.5, 0.0)

        y = triton.load(targets.at[node])
        outputs, squares = per.sums(theta * z), per.sums(theta * theta)
        before = [triton.load(log_weights_in.at[rows, p]) for p in range(shape.kernels)]
        losses, slopes = zip(*(_logistic(output, y) for output in outputs), strict=True)
        after = [w - rate * (loss + lam * square) for w, loss, square in zip(before, losses, squares, strict=True)]
        top = reduce(jnp.maximum, after)
        for p in range(shape.kernels):
            triton.store(log_weights_out.at[place, p], after[p] - top, mask=real)
        learned = theta - eta * (per.spread(slopes) * z + 2 * lam * theta)
        triton.store(theta_out.at[place[:, None], lanes[None, :]], learned, mask=mask)
        if more:
            weights_now = [jnp.exp(w) for w in before]  # the largest is one
            products = [w * output for w, output in zip(weights_now, outputs, strict=True)]
            mean = reduce(jnp.add, products) / reduce(jnp.add, weights_now)
            triton.store(more[0].at[place[:, None], lanes[None, :]], theta, mask=mask)
            priced = triton.load(costs.at[jnp.abs(levels).astype(jnp.int32)]) if method.dithered else levels
            size = _frame_bytes(method.channel.quantizer, shape.n, per.total(priced), steps)
            for ref, value in zip(more[1:], (mean, _logistic(mean, y)[0], size), strict=True):
                triton.store(ref.at[place, 0], value, mask=real)

    return kernel


def _logistic(output: Array, y: Array) -> tuple[Array, Array]:
    """Return the loss and its derivative."""
    margin = -y * output
    e = jnp.exp(-jnp.abs(margin))
    return jnp.maximum(margin, 0.0) + jnp.log1p(e), -y * jnp.where(margin >= 0, 1.0, e) / (1 + e)


class _PerKernel(NamedTuple):
    """Sums over the numbers of each kernel in a row, and back."""

    kernel: Array
    kernels: int

    def sums(self, values: Array) -> list[Array]:
        return [jnp.sum(jnp.where((self.kernel == p)[None, :], values, 0.0), axis=1) for p in range(self.kernels)]

    def total(self, values: Array) -> Array:
        return jnp.sum(jnp.where((self.kernel < self.kernels)[None, :], values, 0.0), axis=1)

    def spread(self, values: Sequence[Array]) -> Array:
        wide = jnp.broadcast_to(values[0][:, None], (values[0].shape[0], self.kernel.shape[0]))
        for p in range(1, self.kernels):
            wide = jnp.where((self.kernel == p)[None, :], values[p][:, None], wide)
        return wide


def _emit(
    method: Gossip, v: Array, now: noise.Key, lanes: Array, width: int, per: _PerKernel
) -> tuple[Array, list[Array]]:
    """Return the levels of rows v = theta - h, and the steps of their kernels."""
    channel = method.channel.quantizer
    if not isinstance(channel, QSGD):
        return jnp.where(jnp.abs(v) < SMALLEST_STEP, 0.0, v), [jnp.ones(v.shape[0], jnp.float32)] * per.kernels
    tau = channel.tau(width // per.kernels)
    steps = [_round_up(jnp.sqrt(square) / (channel.levels * tau)) for square in per.sums(v * v)]
    half = jnp.uint32(width // 2)
    counter = lanes.astype(jnp.uint32)
    word = noise.scramble(jnp, (counter % half)[None, :], now.low, now.high)
    sixteen = (word >> ((counter // half)[None, :] * jnp.uint32(16))) & jnp.uint32(0xFFFF)
    uniforms = (sixteen.astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-16
    step = jnp.maximum(per.spread(steps), SMALLEST_STEP)
    levels = jnp.minimum(jnp.floor(jnp.abs(v) / (step * tau) + uniforms), channel.levels)
    return jnp.where(v < 0, -levels, levels), steps


def _level_bits(quantizer: Quantizer, n: int) -> Sequence[float]:
    return wire.costs(quantizer, n).levels if isinstance(quantizer, QSGD) else (0.0,)


def _frame_bytes(quantizer: Quantizer, n: int, bits: Array, steps: Sequence[Array]) -> Array:
    """Return ``wire.message_bytes`` of rows, whose levels fit one number, given the bits of all of them.

    Levels of a kernel whose step is zero are zeros: what they would cost is known, and they are not sent.
    """
    if not isinstance(quantizer, QSGD):
        return jnp.full(steps[0].shape, wire.HEADER_BYTES + len(steps) * quantizer.size(n) / 8, jnp.float32)
    costs = wire.costs(quantizer, n)
    number, following = bits, jnp.zeros_like(bits)
    spoken, alone = jnp.zeros_like(bits), costs.last
    for step in reversed(steps):
        near = (2 * step >= following) & (step < 2 * following)
        silent = jnp.where(following > 0, costs.silent, 0.0) - n * costs.levels[0]
        number += jnp.where(step > 0, jnp.where(near, costs.near, alone), silent)
        spoken += jnp.where(step > 0, 1.0, 0.0)
        following = jnp.where(step > 0, step, following)
        alone = costs.far
    coded = jnp.maximum(jnp.ceil((number - costs.start) / 8), 0.0)
    fixed = 2 * len(steps) + jnp.ceil(spoken * (costs.width * n / 8))
    return wire.HEADER_BYTES + jnp.minimum(coded, fixed)


def _round_up(step: Array) -> Array:
    """Return ``quantizers.round_up``: nine significant bits of a float32 are its upper half."""
    bits = lax.bitcast_convert_type(jnp.minimum(step, LARGEST_STEP), jnp.uint32)
    rounded = lax.bitcast_convert_type((bits + jnp.uint32(0x7FFF)) & jnp.uint32(0xFFFF8000), jnp.float32)
    return jnp.where(step < SMALLEST_STEP, 0.0, rounded)
