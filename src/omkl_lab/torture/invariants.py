"""What must hold of a network under all faults, and the records that are needed to check it.

A model may change by mixing and by learning only. So each node is watched at its ``Learning``: both kinds of change are
seen, with the copies and weights that were used, and are computed again. After every call of a node its links and its
queues are checked.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from omkl import algorithm
from omkl.algorithm import State
from omkl.methods import clipping
from omkl.node.events import Event
from omkl.node.halves import Floats, total
from omkl.node.learning import Begin, Learn, Mix
from omkl.node.links import MOST_AHEAD, RECENT, Link, LinkState
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.quantizers import Message
from omkl.scaling import Inputs
from omkl.sending import Sampled
from omkl_lab.torture.beginnings import Beginnings, Change
from omkl_lab.torture.differing import Agreements
from omkl_lab.torture.learning_oracle import ROUNDING, LearningOracle, Lesson
from omkl_lab.torture.order import Order
from omkl_lab.torture.violation import Violation, require

MOST_SENDS = MOST_WAITING + 8  # of one call: a round for each sample that waits, and a few answers and questions


class Share(NamedTuple):
    """The change of one node's models by mixing in a round."""

    boot: int
    used: dict[str, tuple[int | None, int]]
    """Boot and round of the copy of each neighbor that was mixed in."""
    pull: Floats


class Known(NamedTuple):
    """The model that a node must have, computed from what was seen."""

    began: Floats
    theta: Floats
    packed: Floats
    content: bytes
    """All of it, to compare."""


@dataclass
class Invariants:
    """What the nodes of a network have said, and what has moved their models.

    Attributes
    ----------
    nodes
        How many there are: a round in which all took part, with all neighbors, must not move the mean.
    said
        Hidden states as bytes, by node, boot and round.
    drift
        What mixing has added to the sum of all models: zero, but for rounding, while nobody is left out.
    oracle, order, beginnings, files
        What was learned, what neighbors owe each other in lock step, what nodes begin with, and what they say of their
        files.
    """

    nodes: int
    said: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    shares: dict[int, dict[str, Share]] = field(default_factory=lambda: defaultdict(dict))
    balanced: int = 0
    drift: float | np.ndarray = 0.0
    recovered: int = 0
    oracle: LearningOracle = field(default_factory=LearningOracle)
    order: Order = field(default_factory=Order)
    beginnings: Beginnings = field(default_factory=Beginnings)
    files: Agreements = field(default_factory=Agreements)
    _known: dict[str, Known] = field(default_factory=dict)
    _past: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    _forgotten: set[tuple[str, int, int]] = field(default_factory=set)
    _begun: set[Protocol] = field(default_factory=set)

    def attach(self, node: Protocol) -> None:
        """Watch a node from its first word on."""
        id = node.role.id
        node.learning.witness = Witness(self, node)
        self.oracle.untold[id].clear()
        self._know(node, node.learning.state.theta.copy())
        self.order.begin(node)
        self.beginnings.begin(node, self.order.taken[id])
        self.record(node)

    def hear(self, node: Protocol, peer: str, data: bytes, now: float) -> None:
        """Note that a node is about to take in bytes of a neighbor."""
        self.order.hear(node, peer, data, now)
        self.beginnings.hear(node, peer, data)

    def begin(self, node: Protocol, half: Begin, models: Floats, round_: int, boot: int | None) -> None:
        """Let a node take models to begin with, and look at it before and after."""
        id, learning = node.role.id, node.learning
        self._check_model(node)
        known, hidden = self._known[id], learning.state.hidden.tobytes()
        mean, start = self.beginnings.mean(node), node.neighbors.start
        # One that has begun with what neighbors say may be given back its own before it takes a round.
        is_first = node not in self._begun and not (start and start.begun)
        half(models, round_, boot)
        state = learning.state
        change = Change(known.packed, np.array(learning.method.pack(state)), known.theta, known.began)
        given_back = models.tobytes() in self._past[id]
        adopted = mean is not None and np.allclose(models, mean, rtol=ROUNDING, atol=ROUNDING)
        require(given_back or adopted, "models are taken that neither it nor its neighbors have said")
        require(state.hidden.tobytes() == hidden, "what was said is changed")
        self.beginnings.check(node, models, (round_, boot), is_first, change, self.order.taken[id])
        self.recovered += given_back
        self._know(node)

    def gossip(self, node: Protocol, copies: Floats, weights: Floats, half: Mix) -> Message:
        """Let a node take a round of gossip, and look at it before and after."""
        learning = node.learning
        self._check_model(node)
        self.beginnings.take(node, node not in self._begun)
        self._begun.add(node)
        self.record(node)
        self.order.note(node, node.neighbors.events)
        self._check_mixing(node, weights)
        start, due = _mixed(node, copies, weights)
        silent = _silent(node)
        said = learning.state.hidden.copy()
        message = half(copies, weights)
        require(not (learning.state.hidden - said)[silent].any(), "a kernel is sent that is not due")
        self._enter(node, start, due)
        self.record(node)
        return message

    def learn(self, node: Protocol, x: Inputs, y: Floats, half: Learn) -> tuple[Floats, float]:
        """Let a node learn a sample, and note what became of it."""
        learning, id = node.learning, node.role.id
        self._check_model(node)
        before = learning.state
        before = before._replace(theta=before.theta.copy(), log_weights=before.log_weights.copy())
        seen = learning.scaled(x)
        output, loss = half(x, y)
        self._know(node)
        self.oracle.note(Lesson(id, node.round, before, x, seen, y, learning.state, output, loss), learning)
        return output, loss

    def _know(self, node: Protocol, began: Floats | None = None) -> None:
        """Note the model that a node has now, and the one it began with."""
        state, id = node.learning.state, node.role.id
        began = self._known[id].began if began is None else began
        packed = np.array(node.learning.method.pack(state))
        self._known[id] = Known(began, state.theta.copy(), packed, _content(state))

    def record(self, node: Protocol) -> None:
        """Note what a node says of its round; a boot must not say two things of one."""
        self.files.note(node)
        key = node.role.id, node.neighbors.boot, node.round
        hidden = node.learning.state.hidden.tobytes()
        self._past[key[0]].add(hidden)
        if key in self._forgotten:
            self._forgotten.discard(key)
            self.said[key] = hidden
        require(self.said.setdefault(key, hidden) == hidden, f"boot {key[1]} says two things of round {key[2]}")

    def forget(self, id: str, is_known: Callable[[int, int], bool]) -> None:
        """Let a node say anew what nobody knows of a boot and round of its."""
        self._forgotten |= {key for key in self.said if key[0] == id and not is_known(*key[1:])}

    def is_later(self, id: str, one: int | None, other: int) -> bool:
        """Return whether a node has first spoken under one boot after it had under another."""
        boots = list(dict.fromkeys(boot for speaker, boot, _ in self.said if speaker == id))
        return one in boots and boots.index(one) > boots.index(other)

    def check(self, node: Protocol, events: list[Event], now: float) -> None:
        """Look at a node that is watched, after it did something at a time of its clock."""
        require(not node.diverged, f"the model diverged at round {node.round}")
        self._check_model(node)
        self.look(node)
        self.order.look(node, events, now)
        self.beginnings.look(node, self.order.taken[node.role.id])

    def look(self, node: Protocol) -> None:
        """Look at what a node says of itself, at its queues, and at its copies."""
        self.record(node)
        neighbors = node.neighbors
        require(len(neighbors.recent) <= RECENT, f"{len(neighbors.recent)} frames kept")
        require(len(node.waiting) <= MOST_WAITING, f"{len(node.waiting)} samples wait")
        require(len(neighbors.sends) <= MOST_SENDS, f"{len(neighbors.sends)} messages at once")
        for link in neighbors.links.values():
            if len(link.inbox) > MOST_AHEAD:
                raise Violation(f"{len(link.inbox)} messages of {link.peer} kept")
            if link.state is LinkState.SYNCED:
                self._check_copy(link)
                self.files.check(node, link)

    def _check_model(self, node: Protocol) -> None:
        """Refuse a model that moved but by mixing and learning, unless it was given back before its first round."""
        id, state = node.role.id, node.learning.state
        known = self._known[id]
        if known.content == _content(state):
            return
        is_given_back = node not in self._begun and state.hidden.tobytes() in self._past[id]
        same = np.array_equal(node.learning.method.pack(state), known.packed)
        require(is_given_back and same, "the model moved by something else than mixing and learning")
        self._know(node)

    def _check_copy(self, link: Link) -> None:
        assert link.boot is not None
        if self.said.get((link.peer, link.boot, link.round)) != link.copy.tobytes():
            raise Violation(f"the copy of {link.peer} at {link.boot}:{link.round} is not its own")

    def _check_mixing(self, node: Protocol, weights: Floats) -> None:
        values, lockstep = weights.tolist(), node.role.timing.mode == "lockstep"
        for link, weight, given in zip(node.links.values(), values, node.role.neighbors.values(), strict=True):
            if weight:
                if link.state is not LinkState.SYNCED:
                    raise Violation(f"{link.peer} is mixed in, and {link.state}")
                due = np.float32(self.files.weight(node, link, given))
                if not math.isclose(weight, due, rel_tol=0 if due == np.float32(given) else ROUNDING):
                    raise Violation(f"{link.peer} has the weight {weight}, and was given {due}")
                self._check_copy(link)
            if lockstep:
                self.order.check_copy(node, link, bool(weight))
        if min(values) < 0 or sum(values) > 1 + ROUNDING:
            raise Violation(f"weights {values} of others are negative, or exceed one")

    def _enter(self, node: Protocol, before: Floats, due: tuple[Floats, ...]) -> None:
        """Note what mixing did, as it was due, and check the mean when the last node of a round is there."""
        state, method, id = node.learning.state, node.learning.method, node.role.id
        self._know(node)
        self.order.take(node)
        finite = math.isfinite(total(state.theta) + total(state.hidden))
        require(finite, f"the model is not finite at round {node.round}")
        for found, wanted in zip((state.theta, state.log_weights, state.velocity), due, strict=False):
            apart = float(np.abs(found - wanted).max())
            most = ROUNDING * (1 + float(np.abs(wanted).max()))
            require(apart <= most, f"mixing is {apart:.3g} from the algorithm's at round {node.round}")
        pull = state.theta.astype(np.float64) - before
        self.drift = self.drift + pull
        by_share = method.channel.least_share(method.members) < 1  # nodes mix by shares of their own
        if node.role.timing.mode == "lockstep" and not by_share:
            used = {link.peer: (link.boot, link.round) for link in node.links.values() if _is_used(link)}
            shares = self.shares[node.round]
            shares[id] = Share(node.neighbors.boot, used, pull)
            if len(shares) == self.nodes and self._is_whole(node.round, shares):
                self._check_mean(node.round, shares)

    def _is_whole(self, at: int, shares: dict[str, Share]) -> bool:
        """Return whether in a round each node used what each of its neighbors had said in the last."""
        links = sum(len(share.used) for share in shares.values())
        level = all(
            copy == (shares[peer].boot, at - 1) for share in shares.values() for peer, copy in share.used.items()
        )
        mutual = all(id in shares[peer].used for id, share in shares.items() for peer in share.used)
        return links > 0 and level and mutual

    def _check_mean(self, at: int, shares: dict[str, Share]) -> None:
        pulls = np.array([share.pull for share in shares.values()])
        self.balanced += 1
        most = ROUNDING * (1 + float(np.abs(pulls).max()))
        moved = float(np.abs(pulls.sum(axis=0)).max())
        require(moved <= most, f"mixing moved the mean by {moved / len(shares):.3g} in round {at}")


class Witness(NamedTuple):
    """Shows the invariants both halves of every round of a node; see ``omkl.node.learning``."""

    invariants: Invariants
    node: Protocol

    def gossip(self, half: Mix, copies: Floats, weights: Floats) -> Message:
        """Return the message of a round."""
        return self.invariants.gossip(self.node, copies, weights, half)

    def begin(self, half: Begin, models: Floats, round_: int, boot: int | None) -> None:
        """Take models to begin with."""
        self.invariants.begin(self.node, half, models, round_, boot)

    def learn(self, half: Learn, x: Inputs, y: Floats) -> tuple[Floats, float]:
        """Return the output for a sample and its loss."""
        return self.invariants.learn(self.node, x, y, half)


def _mixed(node: Protocol, copies: Floats, weights: Floats) -> tuple[Floats, tuple[Floats, ...]]:
    """Return models before neighbors pull, carried on by a velocity, and the models, log weights and velocity due."""
    state, method = node.learning.state, node.learning.method
    own = method.pack(state)
    start = method.mixing.carried(own, state.velocity)
    heard = algorithm.clipped(state.hidden, copies, clipping.radius(method, state, node.round))
    due = algorithm.mix(start, state.hidden, heard, weights, method.mixing.step_in(node.round))
    if (choice := method.channel.sending) is not None:
        share = choice.share(method.worth(state.log_weights))
        due = start + share[..., None, None] * (due - start)
    velocity = (due - own,) if method.mixing.momentum else ()
    mixed = method.unpack(due, state)
    return method.unpack(start, state).theta, (mixed.theta, mixed.log_weights, *velocity)


def _silent(node: Protocol) -> npt.NDArray[np.bool_]:
    """Return which kernels must not be sent in the next round: those that are not sampled."""
    state, choice = node.learning.state, node.learning.method.channel.sending
    if not isinstance(choice, Sampled):  # one that is triggered may be at the threshold, and rounding decides
        return np.zeros(len(state.hidden), dtype=bool)
    weights = node.learning.method.worth(state.log_weights)
    sent = choice.sends(state.hidden, weights, state.moved, node.round)
    return np.asarray(~sent, dtype=bool)


def _content(state: State) -> bytes:
    theta, hidden, log_weights, memory, velocity, moved, hearing = state
    parts = (theta, hidden, log_weights, *memory, velocity, moved, *hearing)
    return b"".join(np.asarray(part).tobytes() for part in parts)


def _is_used(link: Link) -> bool:
    return link.state is LinkState.SYNCED
