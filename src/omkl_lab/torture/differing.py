"""Nodes whose network files differ: one starts again with another file than its neighbors, and what must hold then."""

import struct
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from omkl.learners import SGD
from omkl.methods import Gossip
from omkl.node.links import Link
from omkl.node.protocol import Protocol
from omkl.node.role import CLOSE, DIGEST_BYTES, Role
from omkl_lab.torture.violation import require

if TYPE_CHECKING:
    from omkl_lab.torture.world import World

ROUNDING = 1e-6  # relative, of a product of few float32


class Said(NamedTuple):
    """What a file makes a node say, and how far its rounds go towards each neighbor."""

    role: Role
    contract: str
    digest: bytes
    steps: dict[str, float]


class Agreements:
    """What nodes have said of their files, by boot, and what two neighbors must make of it."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, int], Said] = {}

    def note(self, node: Protocol) -> None:
        """Note a node's file; a boot must not speak of two."""
        key, role = (node.role.id, node.neighbors.boot), node.role
        if key in self._said and self._said[key].role is role:
            return
        said = Said(role, role.contract(), role.settings, {peer: _step(role, peer) for peer in role.neighbors})
        known = self._said.setdefault(key, said)
        require(known[1:] == said[1:], f"boot {key[1]} of {role.id} speaks of two files")
        self._said[key] = said

    def check(self, node: Protocol, link: Link) -> None:
        """Refuse a link in step across contracts, and one whose files differ without a word, or do not and have one."""
        own, other = self._both(node, link)
        if other is None:
            return
        require(own.contract == other.contract, f"{link.peer} is in step, and of another contract")
        due = _difference(own, other, node.role.id, link.peer)
        told = f"{link.peer} differs in {due or 'nothing'}, and {link.differs or 'nothing'} is told"
        require(link.differs == due, told)

    def weight(self, node: Protocol, link: Link, given: float) -> float:
        """Return what a link counts for: of the steps of its ends the smaller, in units of the node's own."""
        own, other = self._both(node, link)
        return given if other is None else given * min(1.0, other.steps[node.role.id] / own.steps[link.peer])

    def _both(self, node: Protocol, link: Link) -> tuple[Said, Said | None]:
        own = self._said[node.role.id, node.neighbors.boot]
        return own, None if link.boot is None else self._said.get((link.peer, link.boot))


def _step(role: Role, peer: str) -> float:
    return float(struct.unpack("<f", role.stance(peer)[DIGEST_BYTES:])[0])


def _difference(own: Said, other: Said, id: str, peer: str) -> str:
    if own.digest != other.digest:
        return "settings"
    steps = own.steps[peer], other.steps[id]
    return "weight" if max(steps) - min(steps) > CLOSE * max(steps) else ""


def differ(world: "World", random: Random) -> str | None:
    """Start a node again with another file than its neighbors have, and in a while with theirs again."""
    if not world.arena.nodes:
        return None
    id = random.choice(sorted(world.arena.nodes))
    what, seconds = random.choice(("gamma", "eta", "weights", "weights", "contract")), random.uniform(1.0, 12.0)
    own = world.shape.config.role(id)
    if (other := _changed(own, what, random)) is None:
        return None
    world.restart(id, other)
    world.later(seconds, lambda: world.restart(id, own))
    return f"{id}, another {what} for {seconds:.3f} s"


def _changed(role: Role, what: str, random: Random) -> Role | None:
    """Return the role of another file; None where this one has nothing of the kind."""
    method, factor = role.method, random.choice((0.4, 0.7))
    if what == "contract":  # a name is the least that makes another one
        return replace(role, network="another")
    if what == "weights":
        return replace(
            role, neighbors={peer: weight * random.choice((1, factor)) for peer, weight in role.neighbors.items()}
        )
    if method.mixing.clip is not None:  # whose radius is each end's own, so that mixing may move the mean
        return None
    if what == "gamma":
        return _other(role, method.replace(gamma=factor * method.mixing.step))
    rule = method.learner
    return _other(role, method.replace(learner=replace(rule, eta=factor * rule.eta))) if isinstance(rule, SGD) else None


def _other(role: Role, method: Gossip) -> Role:
    return replace(role, method=method, settings=bytes(byte ^ 1 for byte in role.settings))
