"""Rounds of all cases, compiled: a chunk of them is one scan.

The projections of a chunk are one large matrix product ahead of the scan, and so are its features in a basis; those of
short inputs are left to the round itself, so that a large network never holds them.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
from jax import lax

from omkl import noise
from omkl.algorithm import State
from omkl.arrays import Array
from omkl.features import Features, transform, waves
from omkl.methods import Gossip, Info, Method, Network, Round, eager
from omkl.methods.protocol import MethodState
from omkl.simulator.changing import Changing
from omkl.simulator.engine import Measure
from omkl.simulator.numbers import Numbers, joined
from omkl.simulator.placement import Placement
from omkl.wire import message_bytes

CHUNK_BYTES = 8 * 2**20  # of projections held at a time by a CPU: they should stay in the cache
DEVICE_SHARE = 8  # of its memory that an accelerator holds of them, where a chunk is a launch
INPUT_BYTES = 2**28  # of short inputs, which are not projected ahead
CHUNK_WORK, DEVICE_CHUNK_WORK = 10**8, 10**10  # projections times rounds, a second or so: between chunks a run can stop
FEWEST_ROUNDS = 8  # of short inputs in a chunk: what is allocated for a large network should serve several rounds
SHORT_INPUT = 4  # up to this length a projection is a few products of numbers
UNROLL = 10  # rounds compiled as one on an accelerator, where launches cost; a CPU gains nothing
TOGETHER_BYTES = 2**30  # of rounds that are measured at once

LEADING = {"nodes": 0, "seeds": 1}  # axes of a state

Seen: TypeAlias = tuple[Round, Info, Array, MethodState]
"""What there is to measure of a round, in the order that a measure takes it."""


class Chunk(NamedTuple):
    """Rounds ``first ... last - 1``."""

    first: int
    last: int
    in_blocks: bool = False
    """Whether its program is for so many rounds, in each of which there is one of gossip."""


class Program(NamedTuple):
    """What a compiled chunk depends on besides the shapes of its arguments."""

    place: Placement
    methods: tuple[Any, ...]
    """Skeletons, as ``numbers`` has them."""
    measure: Measure
    group: int = 1
    """How many rounds there are to a measured one; in a program for any number of rounds 1, or 0 for another number."""
    in_blocks: bool = False


class Running(NamedTuple):
    """What goes from chunk to chunk."""

    states: list[MethodState]
    sent: list[Array | tuple[()]]
    """What methods with a pace have sent since they were last measured, ``(J, S)``."""


class Span(NamedTuple):
    """The segments of a chunk, each of which ends with a round that may be measured."""

    count: Array
    ends: Array
    """After how many rounds of the chunk each ends; more than there are segments."""
    group: Array
    """How many rounds there are to a measured one."""


class Samples(NamedTuple):
    """What the rounds of a chunk are given, ``(T, ...)`` each; there may be more than are taken."""

    t: Array
    starts: tuple[tuple[Array, Array] | None, ...]
    """The first round of gossip of every sample and that of the next, for methods with a pace."""
    X: Array
    y: Array


class Given(NamedTuple):
    """What is the same in every chunk."""

    features: Features
    key: noise.Key
    networks: tuple[Network | Changing, ...]
    numbers: tuple[Numbers, ...]


def chunks(rounds: int, every: int, most: int, steady: int | None = None) -> list[Chunk]:
    """Return chunks of at most so many rounds.

    Those in blocks are of one length, and begin with round ``steady``; None has none. The others are about as long as
    each other: they are filled up, so that one program serves them all.
    """
    lead = rounds if steady is None else min(-(-steady // every) * every, rounds)
    made, length = _pieces(0, lead, every, most), _length(rounds - lead, every, most)
    while lead < rounds:
        group_end = (lead // every + 1) * every
        last = lead + length
        if length and last <= rounds and (last < group_end or length % every == 0):
            made.append(Chunk(lead, last, True))
        else:
            last = min(group_end, lead + most) if most < every else rounds
            made += _pieces(lead, min(last, rounds), every, most)
        lead = last
    return made


def _length(rounds: int, every: int, most: int) -> int:
    """Return how many rounds a block has: as many as another, and a multiple of those that are compiled as one."""
    if most < every:
        return most
    if not (groups := rounds // every):
        return 0
    each = groups // -(-groups // (most // every))
    return every * (each - each % UNROLL or each)


def _pieces(first: int, last: int, every: int, most: int) -> list[Chunk]:
    """Return chunks of about one length, of whole groups; where a group is too long they end with it."""
    if most >= every:
        groups = -(-(last - first) // every)
        each = every * -(-groups // max(1, -(-groups // (most // every))))
        return [Chunk(k, min(k + each, last)) for k in range(first, last, max(each, 1))]
    made: list[Chunk] = []
    while first < last:
        made.append(Chunk(first, min(first + most, last, (first // every + 1) * every)))
        first = made[-1].last
    return made


def segments(chunk: Chunk, every: int) -> list[int]:
    """Return after how many rounds of a chunk each segment ends: those that are measured, and what is left over."""
    ends = list(range((chunk.first // every + 1) * every, chunk.last + 1, every))
    return [end - chunk.first for end in (ends if chunk.last % every == 0 else [*ends, chunk.last])]


def most_rounds(nodes: int, inputs: int, seeds: int, kernels: int, features: int, rank: int = 0) -> int:
    """Return how many rounds' projections, or inputs where those are short, fit a chunk."""
    cpu = jax.default_backend() == "cpu"
    numbers = nodes * seeds * kernels * ahead(features, rank)
    if inputs <= SHORT_INPUT and not rank:
        work = (CHUNK_WORK if cpu else DEVICE_CHUNK_WORK) // numbers
        room = INPUT_BYTES if cpu else device_bytes() // DEVICE_SHARE**2
        return max(1, min(room // (4 * nodes * inputs), max(work, FEWEST_ROUNDS)))
    return max(1, (CHUNK_BYTES if cpu else device_bytes() // DEVICE_SHARE) // (4 * numbers))


def device_bytes() -> int:
    """Return the memory of an accelerator that JAX may use."""
    told = jax.local_devices()[0].memory_stats() or {}
    return int(told.get("bytes_limit", 2**34))


def ahead(features: int, rank: int) -> int:
    """Return how many numbers of a kernel a chunk holds: angles, and where there is a basis waves and what it makes."""
    return 3 * features + rank if rank else features


@cache
def compiled() -> Callable[..., tuple[Running, list[Any]]]:
    """Return the compiled form of a chunk, which takes the arguments of ``_placed``."""
    jitted = partial(jax.jit, _placed, static_argnums=0, donate_argnums=1)
    if jax.default_backend() == "cpu":
        # The library that XLA hands reductions to takes one and a half times what its own code does here.
        options = {"xla_cpu_experimental_ynn_fusion_type": ""}
    else:
        options = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}  # small kernels need not wait for each other
    return jitted(compiler_options=options) if _known(options) else jitted()


def _known(options: dict[str, str]) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options=options).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _placed(
    program: Program, running: Running, span: Span, samples: Samples, given: Given
) -> tuple[Running, list[Any]]:
    place = program.place
    X, y = place.trim(samples.X, nodes=1), place.trim(samples.y, nodes=1)
    features = jax.tree.map(partial(place.trim, seeds=0), given.features)
    running, key = jax.tree.map(partial(place.trim, **LEADING), (running, given.key))
    methods = tuple(map(joined, program.methods, given.numbers))
    chunk = Compiling(program, methods, given._replace(features=features, key=key))
    samples = samples._replace(X=_project(features, X), y=y)
    advance = chunk.blocks if program.in_blocks else partial(chunk.segments, span)
    running, measured = advance(running, samples)
    return jax.tree.map(partial(place.fill, **LEADING), running), jax.tree.map(place.fill, measured)


class Compiling(NamedTuple):
    """A chunk that is being compiled."""

    program: Program
    methods: tuple[Method, ...]
    given: Given

    def segments(self, span: Span, running: Running, samples: Samples) -> tuple[Running, list[Any]]:
        """Return what runs on after the segments of a chunk, and their records."""

        def advance(k: Array, running: Running) -> Running:
            return self.round(running, _at(samples, k))[0]

        def measured(number: Array, running: Running) -> tuple[Running, list[Any]]:
            last = span.ends[number] - 1
            running, seen = self.round(running, _at(samples, last))
            running, seen = self.averaged(running, seen, span.group, (samples.t[last] + 1) % span.group == 0)
            return running, list(map(self.measure, self.methods, seen))

        def segment(number: Array, before: tuple[Running, list[Any]]) -> tuple[Running, list[Any]]:
            running, records = before
            if self.program.group != 1:
                first = jnp.where(number > 0, span.ends[number - 1], 0)
                running = lax.fori_loop(first, span.ends[number] - 1, advance, running)
            running, found = measured(number, running)
            return running, jax.tree.map(lambda every, one: every.at[number].set(one), records, found)

        _, shapes = jax.eval_shape(measured, span.count, running)
        records = jax.tree.map(lambda one: jnp.zeros((len(span.ends), *one.shape), one.dtype), shapes)
        made: tuple[Running, list[Any]] = lax.fori_loop(0, span.count, segment, (running, records))
        return made

    def measure(self, method: Method, seen: Seen) -> Any:
        """Return the record of a round."""
        return self.program.measure(method, *seen)

    def blocks(self, running: Running, samples: Samples) -> tuple[Running, list[Any]]:
        """Return the same of a chunk that is compiled for its length, several rounds as one; none may be measured."""
        rounds, group = len(samples.t), self.program.group

        def advance(running: Running, samples: Samples) -> tuple[Running, None]:
            return self.round(running, samples)[0], None

        if rounds < group:
            return lax.scan(advance, running, samples, unroll=_unroll(rounds))[0], []
        together = _together(self.program, running, rounds)

        def measured(running: Running, samples: Samples) -> tuple[Running, list[Any]]:
            every = []
            for k in range(together):
                if group > 1:
                    before = jax.tree.map(lambda leaf, k=k: leaf[k, :-1], samples)
                    running, _ = lax.scan(advance, running, before, unroll=_unroll(group - 1))
                running, seen = self.round(running, jax.tree.map(lambda leaf, k=k: leaf[k, -1], samples))
                running, seen = self.averaged(running, seen, group, True)
                every.append(seen)
            records = [
                jax.vmap(partial(self.measure, method))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *rounds))
                for method, *rounds in zip(self.methods, *every, strict=True)
            ]
            # By themselves: as parts of a write into all records reductions would be loops of single threads.
            return running, lax.optimization_barrier(records)  # type: ignore[no-untyped-call]

        grouped = jax.tree.map(lambda leaf: leaf.reshape(-1, together, group, *leaf.shape[1:]), samples)
        running, records = lax.scan(measured, running, grouped)
        return running, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), records)

    def averaged(
        self, running: Running, seen: list[Seen], group: Array | int, is_end: Array | bool
    ) -> tuple[Running, list[Seen]]:
        """Return what there is to measure, with the mean size of the messages of a group where it differs in it."""
        means = []
        for sum_, (sample, info, degrees, state) in zip(running.sent, seen, strict=True):
            if not isinstance(sum_, tuple):
                info = info._replace(message_bytes=sum_ / jnp.asarray(group, jnp.float32))
            means.append((sample, info, degrees, state))
        sent = jax.tree.map(lambda sum_: jnp.where(is_end, 0, sum_), running.sent)
        return running._replace(sent=sent), means

    def round(self, running: Running, samples: Samples) -> tuple[Running, list[Seen]]:
        """Return what runs on after a round, and what there is to measure of each case."""
        z = _alone(_features(self.given.features, samples.X))
        now, targets = noise.fold(self.given.key, samples.t), samples.y
        after, seen, sums = [], [], []
        for method, network, starts, state, sum_ in zip(
            self.methods, self.given.networks, samples.starts, *running, strict=True
        ):
            shape = (method.bank.members, targets.shape[-1], method.sent)
            uniforms = _alone(noise.dither(now, shape)) if method.dithered and starts is None else None
            sample = Round(z[..., : shape[0], :], targets[:, None, :], uniforms, samples.t)
            here = network.at(samples.t) if isinstance(network, Changing) else network
            if is_paced(method) and starts is not None and isinstance(state, State):
                state, sent = self.gossip(method, state, here, starts, shape)
                state, info = method.learn(state, sample)
                sum_ = sum_ + sent
            else:
                state, info = eager.step(method, state, sample, here)
            after.append(state)
            sums.append(sum_)
            seen.append((sample, info, here.degrees(len(targets)), state))
        return Running(after, sums), seen

    def gossip(
        self, method: Gossip, state: State, network: Network, starts: tuple[Array, Array], shape: tuple[int, ...]
    ) -> tuple[State, Array]:
        """Return the state after as many rounds of gossip as go with a sample, and what was sent in all of them."""

        def one(round_: Array, before: tuple[State, Array]) -> tuple[State, Array]:
            uniforms = noise.dither(noise.fold(self.given.key, round_), shape) if method.dithered else None
            after, message = method.gossip(before[0], uniforms, network, round_)
            return after, before[1] + message_bytes(message, method.channel.quantizer)

        before = state, jnp.zeros(state.theta.shape[:-3])
        return one(starts[0], before) if self.program.in_blocks else lax.fori_loop(*starts, one, before)


def _at(samples: Samples, k: Array) -> Samples:
    """Return what round k of a chunk is given."""
    found: Samples = jax.tree.map(lambda leaf: leaf[k], samples)
    return found


def _unroll(rounds: int) -> int:
    return min(UNROLL, rounds)


def _together(program: Program, running: Running, rounds: int) -> int:
    """Return how many rounds to measure at once: where launches cost, as many as memory allows."""
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(running))
    most = max(1, min(UNROLL, TOGETHER_BYTES // held))
    return max(n for n in range(1, most + 1) if (rounds // program.group) % n == 0)


def is_paced(method: Method) -> TypeGuard[Gossip]:
    """Return whether a method has a pace of its own."""
    return isinstance(method, Gossip) and method.channel.pace is not None


def _project(features: Features, X: Array) -> Array:
    """Return what is computed ahead of a chunk's inputs: features in a basis, or angles, or nothing."""
    if features.basis is None and X.shape[-1] <= SHORT_INPUT:
        return X
    with jax.default_matmul_precision("highest"):
        if features.basis is not None:
            return transform(X, features)
        return jnp.tensordot(X, features.frequencies, axes=((-1,), (-1,)))


def _features(features: Features, projected: Array) -> Array:
    if features.basis is not None:
        return projected
    V, angles = features.frequencies, projected
    if projected.ndim == 2:  # inputs, not yet projected
        angles = sum(projected[:, None, None, None, k] * V[..., k] for k in range(V.shape[-1]))
    return waves(angles)


def _alone(array: Array) -> Array:
    """Return the array computed by itself on a CPU: in a reduction's loop XLA would compute it number by number."""
    if jax.default_backend() != "cpu":
        return array
    return lax.optimization_barrier(array)  # type: ignore[no-untyped-call]
