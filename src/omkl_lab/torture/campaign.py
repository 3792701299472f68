"""Runs torture: one seed, or many."""

import itertools
import math
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

import numpy as np

from omkl.node.events import Moved, Resynced
from omkl.node.leaps import STAYS
from omkl.node.protocol import Protocol
from omkl_lab.torture.faults import ALL, Faults
from omkl_lab.torture.mixing import Mixing
from omkl_lab.torture.shape import DEADLINE, draw
from omkl_lab.torture.violation import Violation, require
from omkl_lab.torture.world import World

GAP = 0.3  # seconds between two faults, on average
SETTLE = 12  # deadlines within which every link is in step again after the last fault
SETTLE_ROUNDS = 256  # and rounds, in that time: samples that have waited make some dozen at once
MIXED = 12  # rounds of mixing alone in which nodes must come closer to each other
PACE = 0.5  # seconds for each of them
MARGIN = 1.1  # on how far apart the algorithm leaves nodes: rounding may flip a level, which then spreads
CLOSE = 1e-5  # of the models: rounding
JITTERS = 16  # replays that begin a rounding error away, where the first replay ends elsewhere
CHUNK = 8  # seeds that a process is given at once
LAST = 30  # lines of a trace that are shown


class Report(NamedTuple):
    """The result of one seed."""

    seed: int
    shape: str
    faults: Counter[str]
    rounds: int
    settled: float
    """Deadlines from the last fault until every link was in step."""
    settled_rounds: int
    """Rounds that the node with most of them took in that time."""
    closer: float
    """How far apart mixing alone left the nodes, over how far the algorithm leaves them: one."""
    drift: float
    """How far mixing has moved the mean of all models."""
    mean: float
    """How far that mean is from zero."""
    balanced: int
    """Rounds in lock step that nobody was left out of on one side alone, in which the mean was checked."""
    lost: int
    """Acknowledged observations that nodes reported as lost in a crash."""
    recovered: int
    """Times that neighbors gave a node its models back."""
    seconds: float
    digest: str
    """Of all that happened: the same for the same seed."""
    course: str
    """Of what happened without what was computed: the same on another processor too."""
    violation: str | None = None
    """What does not hold, after the last things that happened."""


def run(seed: int, events: int, faults: Faults = ALL) -> Report:
    """Return the report of a seed: its network under so many faults of these kinds."""
    start, random = time.process_time(), Random(seed)
    world = World(draw(random, GAP * events), random)
    counts: Counter[str] = Counter()
    settled, rounds, closer, violation = math.nan, 0, math.nan, None
    try:
        world.begin(_late(world, Random(seed + 1)) if "back-off" in faults else None)
        _disturb(world, events, faults, counts)
        # Who was led astray goes back after its neighbor has, one after the other.
        settled, rounds = _settle(world, SETTLE + bool(counts["forged round"]) * STAYS * world.invariants.nodes)
        closer = _mix(world)
        world.invariants.oracle.check(next(iter(world.arena.nodes.values())).learning)
    except Exception as error:
        told = f"{error}" if isinstance(error, Violation) else traceback.format_exc()
        violation = f"{world.trace.tail(LAST)}\n{told}"
    nodes = world.invariants.nodes
    return Report(
        seed=seed,
        shape=world.shape.describe(),
        faults=counts,
        rounds=sum(world.invariants.order.taken.values()),  # not where nodes count: that may be another's word
        settled=settled,
        settled_rounds=rounds,
        closer=closer,
        drift=_size(world.invariants.drift, nodes),
        mean=_size(_thetas(world).sum(axis=0), nodes),
        lost=world.lost,
        balanced=world.invariants.balanced,
        recovered=world.invariants.recovered,
        seconds=time.process_time() - start,
        digest=world.trace.digest(),
        course=world.trace.course(),
        violation=violation,
    )


def _late(world: World, random: Random) -> dict[str, float]:
    """Return who starts for the first time when others have learned, and when."""
    if random.random() < 0.7:
        return {}
    return {random.choice(world.shape.config.ids): random.uniform(0.0, 4 * DEADLINE)}


def _disturb(world: World, events: int, faults: Faults, counts: Counter[str]) -> None:
    kinds = _kinds(world.random, faults)
    weights = [faults[kind][1] for kind in kinds]
    while counts.total() < events:
        world.arena.run(world.arena.now + world.random.expovariate(1 / GAP))
        (kind,) = world.random.choices(kinds, weights)
        if (told := faults[kind][0](world, world.random)) is not None:
            counts[kind] += 1
            world.trace.note(world.arena.now, "", f"{kind}: {told}")


def _kinds(random: Random, faults: Faults) -> list[str]:
    """Return some kinds of faults: a bug that many kinds hide may show when a few are frequent."""
    kinds = [kind for kind in faults if random.random() < 0.5]
    return kinds or [next(iter(faults))]


def _settle(world: World, most: int) -> tuple[float, int]:
    """Let the faults end; return after how many deadlines and rounds all links are in step."""
    world.calm()
    arena, taken = world.arena, world.invariants.order.taken
    arena.run(max(arena.now, arena.busy))
    start, before = arena.now, taken.copy()
    while not world.is_synced:
        arena.run(arena.now + DEADLINE / 8)
        if arena.now > start + most * DEADLINE:
            raise Violation(f"not in step after {most} deadlines: {world.states()}")
    rounds = max((taken - before).values(), default=0)
    enough = SETTLE_ROUNDS * most // SETTLE  # streams go on while nodes go back hop by hop
    require(rounds <= enough, f"not in step before {rounds} rounds were taken; {enough} are enough")
    return (arena.now - start) / DEADLINE, rounds


def _mix(world: World) -> float:
    """Let mixing go on without learning: nobody is left out any more, and the nodes come closer to each other.

    Returns how far apart they are then, over what the algorithm makes of the same states in the same rounds. How fast
    that is depends on more than the graph: with momentum, hidden states that trail behind a coarse quantizer's messages
    make nodes swing about each other.
    """
    arena = world.arena
    world.is_learning = False
    for id in arena.nodes:
        arena.act(id, Protocol.end)
    _rest(world)
    for _ in range(SETTLE):  # a first round may bring back what neighbors have kept, and its number with it
        _pace(world)
        if world.is_synced:
            break
    begun = calm = len(world.trace)
    mixing = Mixing(world.shape.config, arena.nodes, arena.conditions.delay, world.trace)
    before = _apart(_thetas(world))
    for k in range(MIXED):
        _pace(world)
        if k == MIXED // 2:  # answers to the last questions have come by now
            calm = len(world.trace)
    taken = min(node.round - mixing.rounds[id] for id, node in arena.nodes.items())
    schedule = world.shape.config.method.schedule
    rate = 1.0 if schedule is None else min(1.0, schedule.phases[-1].often / schedule.phases[-1].seldom)
    require(taken >= rate * MIXED - 3, f"{taken} rounds in the time of {rate * MIXED}")
    moved = [str(entry) for entry in world.trace[calm:] if isinstance(entry.what, Moved | Resynced)]
    require(not moved, f"a link moved though nothing happened: {moved[:1]}")
    unanswered = [id for id, stream in world.streams.items() if stream.taken]
    require(not unanswered, f"samples of {unanswered} are taken, and never acknowledged")
    rounding = CLOSE * (1 + _size(_thetas(world), 1))
    after, happened = _apart(_thetas(world)), world.trace[begun:]
    due = _apart(mixing.after(happened))
    least = most = due
    if not _is_between(after, least, most, rounding):
        # A number that is zero but for rounding may flip its sign or level: then the algorithm allows all of these.
        ends = [_apart(mixing.after(happened, jitter)) for jitter in range(JITTERS)]
        least, most = min(due, *ends), max(due, *ends)
    told = f"nodes were {before:.3g} apart, and are {after:.3g}; {least:.3g} to {most:.3g} is due"
    require(_is_between(after, least, most, rounding), told)
    return (after + rounding) / (due + rounding)


def _is_between(after: float, least: float, most: float, rounding: float) -> bool:
    return after <= MARGIN * (most + rounding) and least <= MARGIN * after + (MARGIN - 1) * rounding


def _pace(world: World) -> None:
    """Let a round be taken, without learning."""
    if world.shape.config.timing.mode == "lockstep":
        world.observe(min(world.arena.nodes), labeled=False)
    world.arena.run(world.arena.now + PACE)


def _rest(world: World) -> None:
    """Let all samples at hand be taken."""
    arena = world.arena
    limit = arena.now + 100 * DEADLINE
    while any(node.waiting for node in arena.nodes.values()):
        arena.run(arena.now + DEADLINE / 8)
        require(arena.now < limit, "samples are not taken")
    arena.run(arena.now + DEADLINE / 8)


def _apart(thetas: np.ndarray) -> float:
    """Return how far the models of nodes are from their mean."""
    return _size(thetas - thetas.mean(axis=0), 1)


def _thetas(world: World) -> np.ndarray:
    return np.array([node.learning.state.theta for node in world.arena.nodes.values()], dtype=np.float64)


def _size(array: float | np.ndarray, nodes: int) -> float:
    return float(np.linalg.norm(array)) / nodes


def runs(seeds: Sequence[int], events: int, jobs: int = 1, faults: Faults = ALL) -> Iterator[Report]:
    """Yield the report of each seed, in order; ``jobs`` processes share the work."""
    if jobs == 1:
        yield from map(run, seeds, itertools.repeat(events), itertools.repeat(faults))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, seeds, itertools.repeat(events), itertools.repeat(faults), chunksize=CHUNK)
