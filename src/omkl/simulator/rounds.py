"""Rounds of all cases, compiled: a chunk of them is one scan.

The projections of a chunk are one large matrix product ahead of the scan, and so are its features in a basis; those of
short inputs are left to the round itself, so that a large network never holds them.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from omkl import noise
from omkl.algorithm import State
from omkl.arrays import Array, namespace
from omkl.features import Features, transform
from omkl.methods import Gossip, Info, Method, Network, Round
from omkl.methods.protocol import MethodState
from omkl.simulator.changing import Changing
from omkl.simulator.placement import Placement
from omkl.simulator.waves import waves
from omkl.wire import message_bytes

CHUNK_BYTES = 8 * 2**20  # of projections held at a time by a CPU: they should stay in the cache
DEVICE_CHUNK_BYTES = 2**31  # by an accelerator, where a chunk is a launch
INPUT_BYTES = 2**28  # of short inputs, which are not projected ahead
CHUNK_WORK, DEVICE_CHUNK_WORK = 10**8, 10**10  # projections times rounds, a second or so: between chunks a run can stop
FEWEST_ROUNDS = 8  # of short inputs in a chunk: what is allocated for a large network should serve several rounds
SHORT_INPUT = 4  # up to this length a projection is a few products of numbers
UNROLL = 10  # rounds compiled as one on an accelerator, where launches cost; a CPU gains nothing
TOGETHER_BYTES = 2**30  # of rounds that are measured at once

LEADING = {"nodes": 0, "seeds": 1}  # axes of a state

Seen: TypeAlias = tuple[Round, Info | None, Array, MethodState]
"""What there is to measure of a round, in the order that a measure takes it."""

Measure: TypeAlias = Callable[[Method, Round, Info, Array, MethodState], Any]
"""What to record of a round, given how many hear each node: a NamedTuple of arrays ``(S, ...)``, first the loss."""


class Chunk(NamedTuple):
    """Rounds ``first ... last - 1`` in groups, each of which is measured in its last round, or not at all."""

    first: int
    last: int
    group: int
    measured: bool


class Program(NamedTuple):
    """What a compiled chunk depends on besides the shapes of its arguments."""

    place: Placement
    methods: tuple[Method, ...]
    measure: Measure
    near: bool
    """Whether all angles are small enough for ``waves``."""
    group: int
    measured: bool


class Given(NamedTuple):
    """What is the same in every chunk."""

    features: Features
    key: noise.Key
    networks: tuple[Network | Changing, ...]


def chunks(rounds: int, every: int, most: int) -> Iterator[Chunk]:
    """Yield chunks of at most so many rounds, of one length where a divisor is near: every length is compiled."""
    groups = min(rounds, most) // every
    if groups:
        count = rounds // every
        groups = next((n for n in range(groups, groups // 8, -1) if count % n == 0), groups)
        for first in range(0, count, groups):
            yield Chunk(first * every, min(first + groups, count) * every, every, True)
        start = count * every
    else:
        start = 0
    while start < rounds:
        last = min(start + most, rounds, (start // every + 1) * every)
        yield Chunk(start, last, last - start, last % every == 0)
        start = last


def reach(X: Array, frequencies: Array) -> float:
    """Return a bound on the angles, found where the inputs are."""
    return float((_reach if isinstance(X, np.ndarray) else jax.jit(_reach))(X, frequencies))


def _reach(X: Array, frequencies: Array) -> Array:
    xp = namespace(X)
    return xp.sqrt(xp.einsum("tjd,tjd->tj", X, X).max() * xp.einsum("spfd,spfd->spf", frequencies, frequencies).max())


def most_rounds(nodes: int, inputs: int, seeds: int, kernels: int, features: int, rank: int = 0) -> int:
    """Return how many rounds' projections, or inputs where those are short, fit a chunk."""
    cpu = jax.default_backend() == "cpu"
    numbers = nodes * seeds * kernels * ahead(features, rank)
    if inputs <= SHORT_INPUT and not rank:
        work = (CHUNK_WORK if cpu else DEVICE_CHUNK_WORK) // numbers
        return max(1, min(INPUT_BYTES // (4 * nodes * inputs), max(work, FEWEST_ROUNDS)))
    return max(1, (CHUNK_BYTES if cpu else DEVICE_CHUNK_BYTES) // (4 * numbers))


def ahead(features: int, rank: int) -> int:
    """Return how many numbers of a kernel a chunk holds: angles, and where there is a basis waves and what it makes."""
    return 3 * features + rank if rank else features


@cache
def compiled() -> Callable[..., tuple[list[MethodState], list[Any]]]:
    """Return the compiled form of a chunk: from ``(program, states, times, X, y, given)`` to states and records."""
    jitted = partial(jax.jit, _placed, static_argnums=0, donate_argnums=1)
    # The library that XLA hands reductions to on a CPU takes one and a half times what its own code does here.
    options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    if jax.default_backend() == "cpu" and _known(options):
        return jitted(compiler_options=options)
    return jitted()


def _known(options: dict[str, str]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _placed(
    program: Program, states: list[MethodState], times: Array, X: Array, y: Array, given: Given
) -> tuple[list[MethodState], list[Any]]:
    place = program.place
    X, y = place.trim(X, nodes=1), place.trim(y, nodes=1)
    features = jax.tree.map(partial(place.trim, seeds=0), given.features)
    states, key = jax.tree.map(partial(place.trim, **LEADING), (states, given.key))
    states, measured = _chunk(program, states, times, X, y, Given(features, key, given.networks))
    return jax.tree.map(partial(place.fill, **LEADING), states), jax.tree.map(place.fill, measured)


def _chunk(
    program: Program, states: list[MethodState], times: Array, X: Array, y: Array, given: Given
) -> tuple[list[MethodState], list[Any]]:
    inputs, together = (times, _project(program, given.features, X), y), _together(program, states, len(times))

    def advance(states: list[MethodState], inputs: Any) -> tuple[list[MethodState], list[Array]]:
        """Take a round, and return what was sent by methods that send more in some rounds than in others."""
        states, seen = _round(program, given, states, inputs, False)
        sizes = (info.message_bytes if info else 0.0 for _, info, *_ in seen)
        return states, [size if is_paced(one) else 0.0 for one, size in zip(program.methods, sizes, strict=True)]

    def measure(states: list[MethodState], inputs: Any) -> tuple[list[MethodState], list[Any]]:
        """Take rounds, each the end of a group, and measure them all at once."""
        seen = []
        for k in range(together):
            if program.group > 1:
                before = jax.tree.map(lambda leaf, k=k: leaf[k, :-1], inputs)
                states, sizes = lax.scan(advance, states, before, unroll=_unroll(program.group - 1))
            states, last = _round(program, given, states, jax.tree.map(lambda leaf, k=k: leaf[k, -1], inputs), True)
            seen.append(last if program.group == 1 else _averaged(program, last, sizes))
        return states, _measured(program, seen)

    if not program.measured:
        return lax.scan(advance, states, inputs, unroll=_unroll(len(times)))[0], []
    grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, together, program.group, *leaf.shape[1:]), inputs)
    states, records = lax.scan(measure, states, grouped)
    return states, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), records)


def _unroll(rounds: int) -> int:
    return 1 if jax.default_backend() == "cpu" else min(UNROLL, rounds)


def _together(program: Program, states: list[MethodState], rounds: int) -> int:
    """Return how many rounds to measure at once: on an accelerator, where launches cost, as many as memory allows."""
    if jax.default_backend() == "cpu":
        return 1
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(states))
    most = max(1, min(UNROLL, TOGETHER_BYTES // held))
    return max(n for n in range(1, most + 1) if (rounds // program.group) % n == 0)


def _averaged(program: Program, last: list[Seen], sizes: list[Array]) -> list[Seen]:
    """Return what there is to measure, with the mean size of the messages over a group where it differs in it."""
    averaged = []
    for method, (sample, info, degrees, state), before in zip(program.methods, last, sizes, strict=True):
        if info is not None and is_paced(method):
            mean = (jnp.sum(before, axis=0) + info.message_bytes) / program.group
            info = info._replace(message_bytes=mean)
        averaged.append((sample, info, degrees, state))
    return averaged


def _measured(program: Program, seen: list[list[Seen]]) -> list[Any]:
    """Return the records of several rounds, one after the other or, where they are several, all at once."""
    records = []
    for method, *rounds in zip(program.methods, *seen, strict=True):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds)
        records.append(jax.vmap(partial(program.measure, method))(*stacked))
    return records


def _round(
    program: Program, given: Given, states: list[MethodState], inputs: tuple[Array, Array, Array], measured: bool
) -> tuple[list[MethodState], list[Seen]]:
    """Return the states after a round, and what there is to measure of each case."""
    t, projected, targets = inputs
    z = _alone(_features(program, given.features, projected))
    now = noise.fold(given.key, t)
    after: list[MethodState] = []
    seen: list[Seen] = []
    for method, network, state in zip(program.methods, given.networks, states, strict=True):
        shape = (method.bank.members, targets.shape[-1], method.sent)
        uniforms = _alone(noise.dither(now, shape)) if method.dithered and not is_paced(method) else None
        sample = Round(z[..., : shape[0], :], targets[:, None, :], uniforms, t)
        here = network.at(t) if isinstance(network, Changing) else network
        if is_paced(method):
            state, info = _paced(method, state, sample, here, given.key, t)
        else:
            state, info = method.step(state, sample, here)
        after.append(state)
        seen.append((sample, info, here.degrees(len(targets)), state))
    return after, seen


def is_paced(method: Method) -> TypeGuard[Gossip]:
    """Return whether a method has a pace of its own."""
    return isinstance(method, Gossip) and method.channel.pace is not None


def _paced(
    method: Gossip, state: State, sample: Round, network: Network, key: noise.Key, t: Array
) -> tuple[State, Info]:
    """Return the state after as many rounds of gossip as go with sample t, and the sample; messages are added up."""
    assert method.schedule is not None
    shape = (method.bank.members, sample.y.shape[-1], method.sent)

    def gossip(round_: Array, before: tuple[State, Array]) -> tuple[State, Array]:
        uniforms = noise.dither(noise.fold(key, round_), shape) if method.dithered else None
        after, message = method.gossip(before[0], uniforms, network, round_)
        return after, before[1] + message_bytes(message, method.channel.quantizer)

    first, last = (method.schedule.rounds(count) for count in (t, t + 1))
    state, sent = lax.fori_loop(first, last, gossip, (state, jnp.zeros(state.theta.shape[:-3])))
    state, info = method.learn(state, sample)
    return state, info._replace(message_bytes=sent)


def _project(program: Program, features: Features, X: Array) -> Array:
    """Return what is computed ahead of a chunk's inputs: features in a basis, or angles, or nothing."""
    if features.landmarks is not None:
        with jax.default_matmul_precision("highest"):
            return transform(X, features)
    V, basis = features.frequencies, features.basis
    assert V is not None
    if basis is None and X.shape[-1] <= SHORT_INPUT:
        return X
    if basis is None:
        return jnp.tensordot(X, V, axes=((-1,), (-1,)), precision="highest")
    angles = jnp.einsum("tjd,spfd->sptjf", X, V, precision="highest")  # in the order that the next product takes
    return jnp.einsum("sptjk,spkr->tjspr", _waves(program, angles), basis, precision="highest")


def _features(program: Program, features: Features, projected: Array) -> Array:
    V = features.frequencies
    if features.basis is not None or V is None:
        return projected
    angles = projected
    if projected.ndim == 2:  # inputs, not yet projected
        angles = sum(projected[:, None, None, None, k] * V[..., k] for k in range(V.shape[-1]))
    return _waves(program, angles)


def _waves(program: Program, angles: Array) -> Array:
    sines = waves(angles) if program.near else jnp.concat([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return sines * angles.shape[-1] ** -0.5


def _alone(array: Array) -> Array:
    """Return the array computed by itself on a CPU: in a reduction's loop XLA would compute it number by number."""
    if jax.default_backend() != "cpu":
        return array
    return lax.optimization_barrier(array)  # type: ignore[no-untyped-call]
