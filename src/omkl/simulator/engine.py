"""Run methods on a whole network under many seeds: chunks of rounds, each one compiled scan.

Arrays are ``(J, S, ...)``: nodes first, so that mixing is one product with everything else folded into its columns;
seeds second. The projections of a chunk are one large matrix product ahead of the scan. Several cases, each a method on
a network, may share a pass: the same samples, features and dither, computed once.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from omkl import noise
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.methods import Info, Method, Network, Round
from omkl.methods.protocol import MethodState
from omkl.simulator.cache import keep_programs
from omkl.simulator.faults import Changing
from omkl.simulator.placement import Placement
from omkl.simulator.waves import LIMIT, waves

CHUNK_BYTES = 8 * 2**20  # of projections held at a time by a CPU: they should stay in the cache
DEVICE_CHUNK_BYTES = 2**30  # by an accelerator, where a chunk is a launch
UNROLL = 4  # rounds compiled as one on an accelerator, where launches cost; a CPU gains nothing

HERE = Placement()
LEADING = {"nodes": 0, "seeds": 1}  # axes of a state

ADVICE = "lower gamma or eta, scale the data, or use a quantizer with a larger delta (see omkl explain)"

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""

Measure: TypeAlias = Callable[[Method, Round, Info, MethodState], Any]
"""What to record of a round: a NamedTuple of arrays ``(S, ...)``, the first of them the loss."""


class DivergedError(InputError):
    """The run left the finite numbers."""


class Case(NamedTuple):
    """A method on a network."""

    method: Method
    network: Network | Changing


class Problem(NamedTuple):
    """What all cases of a pass share: inputs ``(T, J, d)``, targets ``(T, J, C)``, frequencies ``(S, P, D, d)``."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    frequencies: npt.NDArray[np.float32]
    seeds: list[int]

    def share(self, which: npt.NDArray[np.int64]) -> "Problem":
        """Return the same for some of the seeds."""
        return self._replace(frequencies=self.frequencies[which], seeds=[self.seeds[s] for s in which])


def run(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure,
    progress: Progress | None = None,
    place: Placement = HERE,
) -> list[tuple[MethodState, Any]]:
    """Return, for every case, the state after the last round and what was measured of every round, as NumPy arrays.

    The kernels of a case are the first of those the frequencies were drawn for. On a CPU the seeds are dealt to as many
    threads as there are cores: XLA itself keeps to one. Networks are those of the ``place`` that the run has.
    """
    keep_programs()
    threads = _threads() if place == HERE else 1
    shares = [share for share in np.array_split(np.arange(len(problem.seeds)), threads) if len(share)]
    stop, pool = threading.Event(), ThreadPoolExecutor(len(shares))
    others = [pool.submit(_run_share, problem.share(share), cases, measure, None, stop, place) for share in shares[1:]]
    try:
        # The first share runs here, where Ctrl-C arrives and the caller's progress is called.
        outcomes = [_run_share(problem.share(shares[0]), cases, measure, progress, stop, place)]
        outcomes += [other.result() for other in others]
    finally:
        stop.set()
        _await(others)
        pool.shutdown()
    return [jax.tree.map(_join_seeds, *parts) for parts in zip(*outcomes, strict=True)]


def _await(work: Sequence[Future[Any]]) -> None:
    """Wait for work to end, also through a second Ctrl-C: an interpreter that ends beneath a thread aborts.

    On the futures, not the threads: a join that is interrupted may take a running thread for ended.
    """
    while True:
        try:
            wait(work)
        except KeyboardInterrupt:
            continue
        return


def _threads() -> int:
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seeded(network: Changing, seeds: list[int], place: Placement) -> Changing:
    placed: Changing = jax.tree.map(lambda leaf: place.put(np.asarray(leaf)), network.seeded(seeds))
    return placed


def _join_seeds(*parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return arrays ``(J, S, ...)`` or ``(rounds, S, ...)`` joined along the seeds; what has no such axis is common."""
    return np.concatenate(parts, axis=1) if parts[0].ndim > 1 else parts[0]


def _run_share(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure,
    progress: Progress | None,
    stop: threading.Event,
    place: Placement,
) -> list[tuple[MethodState, Any]]:
    X, y, frequencies, seeds = problem
    rounds, nodes, _ = X.shape
    reach = np.linalg.norm(X, axis=-1).max() * np.linalg.norm(frequencies, axis=-1).max()
    base = noise.fold(noise.key(seeds, "quantizer"), np.arange(nodes)[:, None, None])
    key = noise.Key(*(place.put(part, **LEADING) for part in base))
    V = place.put(frequencies, seeds=0)
    methods = tuple(method for method, _ in cases)
    networks = tuple(_seeded(one, seeds, place) if isinstance(one, Changing) else one for _, one in cases)
    states = place.start(lambda: [method.init(jnp, (nodes, len(seeds)), y.shape[-1]) for method in methods])
    recorded = []
    for first, last in _chunks(rounds, -(-4 * nodes * frequencies[..., 0].size // place.devices)):
        if stop.is_set():
            break
        times = np.arange(first, last, dtype=np.uint32)
        samples = (place.put(part[first:last], nodes=1) for part in (X, y))
        states, measured = _compiled()(
            place, methods, measure, bool(reach < LIMIT), states, times, *samples, V, key, networks
        )
        recorded.append(jax.tree.map(np.asarray, measured))
        for part in recorded[-1]:
            _require_finite(part[0], first, seeds)
        if progress is not None:
            progress(last, rounds)
    if not recorded:
        return []
    final = place.take(states)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(final)):
        raise DivergedError(f"a model is not finite after {rounds} rounds; a run must stay finite; {ADVICE}")
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *recorded)
    return list(zip(final, joined, strict=True))


@cache
def _compiled() -> Callable[..., tuple[list[MethodState], list[Any]]]:
    compiled = partial(jax.jit, _placed_chunk, static_argnums=(0, 1, 2, 3), donate_argnums=4)
    # The library that XLA hands reductions to on a CPU takes one and a half times what its own code does here.
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    if jax.default_backend() == "cpu" and _known(options):
        return compiled(compiler_options=options)
    return compiled()


def _known(options: dict[str, str]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _placed_chunk(
    place: Placement,
    methods: tuple[Method, ...],
    measure: Measure,
    near: bool,
    states: list[MethodState],
    times: Array,
    X: Array,
    y: Array,
    V: Array,
    key: noise.Key,
    networks: tuple[Network | Changing, ...],
) -> tuple[list[MethodState], list[Any]]:
    X, y, V = place.trim(X, nodes=1), place.trim(y, nodes=1), place.trim(V, seeds=0)
    states, key = jax.tree.map(partial(place.trim, **LEADING), (states, key))
    states, measured = _chunk(methods, measure, near, states, times, X, y, V, key, networks)
    return jax.tree.map(partial(place.fill, **LEADING), states), jax.tree.map(place.fill, measured)


def _chunk(
    methods: tuple[Method, ...],
    measure: Measure,
    near: bool,
    states: list[MethodState],
    times: Array,
    X: Array,
    y: Array,
    V: Array,
    key: noise.Key,
    networks: tuple[Network | Changing, ...],
) -> tuple[list[MethodState], list[Any]]:
    def body(states: list[MethodState], inputs: tuple[Array, Array, Array]) -> tuple[list[MethodState], list[Any]]:
        t, angles, targets = inputs
        sines = waves(angles) if near else jnp.concat([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        z = lax.optimization_barrier(sines * V.shape[-2] ** -0.5)  # type: ignore[no-untyped-call]
        now = noise.fold(key, t)
        after, measured = [], []
        for method, network, state in zip(methods, networks, states, strict=True):
            shape = (len(method.kernels), targets.shape[-1], 2 * method.features)
            dither = noise.dither(now, shape) if method.dithered else None
            # Inside a reduction's loop XLA computes z and dither one by one; on their own they vectorize.
            uniforms = lax.optimization_barrier(dither)  # type: ignore[no-untyped-call]
            given = Round(z[..., : shape[0], :], targets[:, None, :], uniforms)
            here = network.at(t) if isinstance(network, Changing) else network
            state, info = method.step(state, given, here)
            after.append(state)
            measured.append(measure(method, given, info, state))
        return after, measured

    angles = jnp.tensordot(X, V, axes=((-1,), (-1,)), precision="highest")
    unroll = 1 if jax.default_backend() == "cpu" else min(UNROLL, len(times))
    return lax.scan(body, states, (times, angles, y), unroll=unroll)


def _chunks(rounds: int, bytes_per_round: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last); a length that divides the rounds where one is near, since every length is compiled."""
    budget = CHUNK_BYTES if jax.default_backend() == "cpu" else DEVICE_CHUNK_BYTES
    most = max(1, min(rounds, budget // bytes_per_round))
    length = next((n for n in range(most, most // 8, -1) if rounds % n == 0), most)
    for first in range(0, rounds, length):
        yield first, min(first + length, rounds)


def _require_finite(loss: npt.NDArray[np.float32], first: int, seeds: list[int]) -> None:
    bad = np.argwhere(~np.isfinite(loss))
    if len(bad):
        t, s = bad[0]
        raise DivergedError(
            f"the loss is {loss[t, s]} at round {first + t} of seed {seeds[s]}; a run must stay finite; {ADVICE}"
        )
