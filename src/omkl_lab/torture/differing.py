"""Files that differ: a node that starts again with another file than its neighbors', and what must hold of it."""

import struct
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from omkl.learners import SGD
from omkl.methods import Gossip
from omkl.node.links import Link, LinkState
from omkl.node.protocol import Protocol
from omkl.node.role import DIGEST_BYTES, Role
from omkl_lab.torture.violation import require

if TYPE_CHECKING:
    from omkl_lab.torture.world import World

ROUNDING = 1e-6  # relative, of a product of few float32


class Agreements:
    """What nodes have said of their files, by boot, and what two neighbors must make of it."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, int], Role] = {}

    def note(self, node: Protocol) -> None:
        """Note a node's file; a boot must not speak of two."""
        role = self._roles.setdefault((node.role.id, node.neighbors.boot), node.role)
        told = f"boot {node.neighbors.boot} of {role.id} speaks of two files"
        require(_said(role) == _said(node.role), told)

    def check(self, node: Protocol, link: Link) -> None:
        """Refuse a link in step across contracts, and one whose files differ without a word, or do not and have one."""
        if link.state is not LinkState.SYNCED or (other := self._other(link)) is None:
            return
        require(node.role.contract() == other.contract(), f"{link.peer} is in step, and of another contract")
        due = _difference(node.role.stance(link.peer), other.stance(node.role.id))
        require(
            link.differs == due, f"{link.peer} differs in {due or 'nothing'}, and {link.differs or 'nothing'} is told"
        )

    def weight(self, node: Protocol, link: Link, given: float) -> float:
        """Return what a link counts for: of the steps of its ends the smaller, in units of the node's own."""
        if (other := self._other(link)) is None:
            return given
        own, theirs = (_step(one) for one in (node.role.stance(link.peer), other.stance(node.role.id)))
        return given if theirs >= own else given * theirs / own

    def _other(self, link: Link) -> Role | None:
        return None if link.boot is None else self._roles.get((link.peer, link.boot))


def _said(role: Role) -> tuple[str, dict[str, bytes]]:
    return role.contract(), {peer: role.stance(peer) for peer in role.neighbors}


def _step(stance: bytes) -> float:
    return float(struct.unpack("<f", stance[DIGEST_BYTES:])[0])


def _difference(ours: bytes, theirs: bytes) -> str:
    if ours[:DIGEST_BYTES] != theirs[:DIGEST_BYTES]:
        return "settings"
    return "" if abs(_step(ours) - _step(theirs)) <= 1e-3 * max(_step(ours), _step(theirs)) else "weight"


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
