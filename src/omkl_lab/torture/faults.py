"""Faults: what can happen to messages, links, nodes, clocks and disks, and how it ends."""

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from omkl import wire
from omkl.node.persistence.saver import count_file
from omkl_lab.torture.differing import differ
from omkl_lab.torture.shape import DEADLINE

if TYPE_CHECKING:
    from omkl_lab.torture.world import World

Fault: TypeAlias = "Callable[[World, Random], str | None]"
"""Lets something happen; returns it in words, or None where it cannot happen now."""

Faults: TypeAlias = dict[str, tuple[Fault, float]]
"""By name: what happens, and how often as compared with others."""


def _duration(random: Random, least: float = 0.02, most: float = 3.0) -> float:
    """Return seconds, from an instant to some deadlines, each order of magnitude as likely."""
    return DEADLINE * math.exp(random.uniform(math.log(least), math.log(most)))


def _node(world: "World", random: Random) -> str | None:
    return random.choice(sorted(world.arena.nodes)) if world.arena.nodes else None


# Messages


def _hit(world: "World", random: Random, count: int, hit: Callable[[bytes], list[tuple[float, bytes]]]) -> str:
    """Let a fault hit the next messages in one direction of a link."""
    pair = random.choice(world.links)
    sender, receiver = pair if random.random() < 0.5 else pair[::-1]
    world.arena.hits.setdefault((sender, receiver), deque()).extend([hit] * count)
    return f"{sender} to {receiver}, {count} messages"


def lose(world: "World", random: Random) -> str:
    """Lose a message, or many."""
    return _hit(world, random, random.choice((1, 1, 2, 3, 20)), lambda data: [])


def repeat(world: "World", random: Random) -> str:
    """Deliver messages twice, the second time perhaps much later."""
    later = random.choice((0.0, 0.1, _duration(random, most=1.5)))
    return _hit(world, random, random.randint(1, 3), lambda data: [(0.0, data), (later, data)])


def delay(world: "World", random: Random) -> str:
    """Deliver messages late."""
    later = _duration(random, most=1.5)
    return _hit(world, random, random.randint(1, 3), lambda data: [(later, data)]) + f", {later:.3f} s"


def reorder(world: "World", random: Random) -> str:
    """Let messages overtake each other."""
    return _hit(world, random, random.randint(2, 6), lambda data: [(0.6 * random.random(), data)])


def flip(world: "World", random: Random) -> str:
    """Flip a bit of messages."""

    def flipped(data: bytes) -> list[tuple[float, bytes]]:
        head = 2 if wire.peek(data).kind in wire.GOSSIP else 7
        at = random.randrange(8 * len(data)) if random.random() < 0.5 else random.randrange(8 * head)
        broken = bytearray(data)
        broken[at // 8] ^= 1 << at % 8
        return [(0.0, bytes(broken))]

    return _hit(world, random, random.choice((1, 1, 3)), flipped)


# Links


def cut(world: "World", random: Random) -> str | None:
    """Cut a link, which its ends notice or do not."""
    one, other = random.choice(world.links)
    if world.arena.is_cut(one, other):
        return None
    seconds, noticed = _duration(random), random.random() < 0.5
    world.arena.cut(one, other, noticed)
    world.later(seconds, lambda: world.arena.mend(one, other))
    return f"{one}-{other} for {seconds:.3f} s{'' if noticed else ', not noticed'}"


def deafen(world: "World", random: Random) -> str | None:
    """Let one end of a link not hear the other, which nobody is told when it ends either."""
    pair = random.choice(world.links)
    pair = pair if random.random() < 0.5 else (pair[1], pair[0])
    if pair in world.arena.deaf:
        return None
    seconds = _duration(random)
    world.arena.deaf.add(pair)
    world.later(seconds, lambda: world.arena.deaf.discard(pair))
    return f"{pair[1]} does not hear {pair[0]} for {seconds:.3f} s"


def flap(world: "World", random: Random) -> str:
    """Let the ends of a link believe that it broke, or came back, or both, though it did not."""
    one, other = random.choice(world.links)
    if random.random() < 0.6:
        world.arena.part(one, other)
    world.later(random.choice((0.0, 0.3)), lambda: world.reach(one, other))
    return f"{one}-{other}"


def partition(world: "World", random: Random) -> str | None:
    """Cut all links between some nodes and the rest."""
    part = {id for id in world.shape.config.ids if random.random() < 0.5}
    between = [pair for pair in world.links if (pair[0] in part) != (pair[1] in part) and not world.arena.is_cut(*pair)]
    if not between:
        return None
    seconds, noticed = _duration(random), random.random() < 0.5
    for pair in between:
        world.arena.cut(*pair, noticed)
    world.later(seconds, lambda: world.mend(between))
    return f"{' '.join(sorted(part))} apart for {seconds:.3f} s{'' if noticed else ', not noticed'}"


# Nodes


def _crash(world: "World", random: Random, id: str) -> str:
    seconds = _duration(random, 0.005)
    world.crash(id, noticed=random.random() < 0.7)
    world.return_in(id, seconds)
    return f"{id}, back in {seconds:.3f} s"


def crash(world: "World", random: Random) -> str | None:
    """Kill a node; it comes back with its disk."""
    return None if (id := _node(world, random)) is None else _crash(world, random, id)


def lose_disk(world: "World", random: Random) -> str | None:
    """Kill a node and take its disk away."""
    if (id := _node(world, random)) is None:
        return None
    told = _crash(world, random, id)
    world.lose_disk(id)
    return told


def turn_back_disk(world: "World", random: Random) -> str | None:
    """Stop a node and bring back old files: any, or those from when it leaves in order now."""
    if (id := _node(world, random)) is None:
        return None
    if random.random() < 0.5 and (past := world.disks[id].past):
        world.bring_back(id, random.choice(past))
        return id
    world.leave(id)
    world.return_in(id, _duration(random, 0.005, 0.1))
    files, seconds, made = dict(world.disks[id].files), _duration(random, 0.2), world.arena.now
    world.later(seconds, lambda: world.bring_back(id, files, made))
    return f"{id}, which leaves, in {seconds:.3f} s"


def rot(world: "World", random: Random) -> str | None:
    """Kill a node, and flip a bit of its checkpoint; the one before it is left."""
    if (id := _node(world, random)) is None or not world.disks[id].rot(world.shape.checkpoint.file(id)):
        return None
    world.streams[id].intact = False
    return _crash(world, random, id)


def crash_in_save(world: "World", random: Random) -> str | None:
    """Kill a node in the middle of what it does to its disk: a write is torn, or a move not made."""
    if (id := _node(world, random)) is None:
        return None
    world.disks[id].calls_left = random.randrange(4)
    return id


def leave(world: "World", random: Random) -> str | None:
    """Let a node leave in order and come back."""
    if (id := _node(world, random)) is None:
        return None
    seconds = _duration(random, 0.005)
    world.leave(id)
    world.return_in(id, seconds)
    return f"{id}, back in {seconds:.3f} s"


def pause(world: "World", random: Random) -> str | None:
    """Stop a node for a while."""
    if (id := _node(world, random)) is None:
        return None
    seconds = _duration(random)
    world.arena.pause(id, seconds)
    return f"{id} for {seconds:.3f} s"


def slow_down(world: "World", random: Random) -> str | None:
    """Make every action of a node slow."""
    if (id := _node(world, random)) is None:
        return None
    seconds, cost = _duration(random), random.choice((0.01, 0.05, 0.2))
    world.arena.slow_down(id, cost)
    world.later(seconds, lambda: world.arena.slow_down(id, 0.0))
    return f"{id} for {seconds:.3f} s, {cost} s each"


def back_off(world: "World", random: Random) -> str | None:
    """Kill a node, and take its disk or not; when it is back neighbors reach it later, each in its own time."""
    if (id := _node(world, random)) is None:
        return None
    world.crash(id)
    if random.random() < 0.6:
        world.lose_disk(id)
    waits = {peer: random.uniform(0.0, 2 * DEADLINE) for peer in world.neighbors(id)}
    seconds = _duration(random)
    world.later(seconds, lambda: world.start_apart(id, waits))
    return f"{id}, back in {seconds:.3f} s, reached " + ", ".join(
        f"by {who} {wait:.1f} s" for who, wait in waits.items()
    )


def forge(world: "World", random: Random) -> str | None:
    """Let a member send a round number that nobody has reached to a neighbor, and be killed."""
    liar, victim = random.choice(world.links)
    if random.random() < 0.5:
        liar, victim = victim, liar
    if liar not in world.arena.nodes or victim not in world.arena.nodes or world.arena.is_cut(liar, victim):
        return None
    at = random.choice((2**31 - 1, 2**31, 2**32 - 1, 2**30, 2**24)) - random.randrange(2)
    world.forge(liar, victim, at)
    seconds = _duration(random)
    world.return_in(liar, seconds)
    return f"{liar} says round {at} to {victim}, and is back in {seconds:.3f} s"


# Clocks


def jump(world: "World", random: Random) -> str:
    """Let a clock jump ahead."""
    id, seconds = random.choice(world.shape.config.ids), _duration(random, 0.01, 100.0)
    world.arena.set_clock(id, 1.0, seconds)
    return f"{id} by {seconds:.3f} s"


def drift(world: "World", random: Random) -> str:
    """Let a clock stand still, or go too slowly or too fast."""
    id, seconds, pace = random.choice(world.shape.config.ids), _duration(random), random.choice((0.0, 0.5, 1.1, 3.0))
    world.arena.set_clock(id, pace)
    world.later(seconds, lambda: world.arena.set_clock(id, 1.0))
    return f"{id} at {pace} for {seconds:.3f} s"


# Disks


def fill(world: "World", random: Random) -> str:
    """Let a disk be full for a while."""
    id, seconds = random.choice(world.shape.config.ids), _duration(random)
    world.disks[id].full = True
    world.later(seconds, lambda: setattr(world.disks[id], "full", False))
    return f"{id} for {seconds:.3f} s"


def rot_count(world: "World", random: Random) -> str | None:
    """Kill a node, and damage the number of what it has acknowledged."""
    if (id := _node(world, random)) is None:
        return None
    if not world.disks[id].rot_number(count_file(world.shape.checkpoint.file(id))):
        return None
    world.streams[id].rotten = True
    return _crash(world, random, id)


def starve(world: "World", random: Random) -> str:
    """Let a process have no descriptors left for a while, perhaps from the middle of a save on."""
    id, seconds, left = random.choice(world.shape.config.ids), _duration(random), random.randrange(4)
    world.disks[id].opens_left = left
    world.later(seconds, lambda: setattr(world.disks[id], "opens_left", None))
    return f"{id} for {seconds:.3f} s, after {left} more"


FAULTS: Faults = {
    "loss": (lose, 6), "duplication": (repeat, 4), "delay": (delay, 4), "reordering": (reorder, 3), "flip": (flip, 4),
    "cut": (cut, 3), "one-way cut": (deafen, 2), "flap": (flap, 2), "partition": (partition, 1),
    "crash": (crash, 1.5), "lost disk": (lose_disk, 0.7), "old checkpoint": (turn_back_disk, 0.7),
    "rotten checkpoint": (rot, 0.7), "crash in a save": (crash_in_save, 1), "full disk": (fill, 1),
    "leave": (leave, 1.5), "pause": (pause, 1.5), "slow node": (slow_down, 1),
    "clock jump": (jump, 1.5), "clock drift": (drift, 1.5),
}  # fmt: skip
"""What happens under the seeds whose course is frozen; more would change it."""

MORE: Faults = {
    "rotten count": (rot_count, 0.7), "no descriptors": (starve, 1), "files that differ": (differ, 3),
    "back-off": (back_off, 2), "forged round": (forge, 1.5),
}  # fmt: skip
ALL: Faults = FAULTS | MORE
