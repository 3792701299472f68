"""Checks what nodes start with: their own models, given back by neighbors, or their neighbors' models, or zeros.

Models change in one step then, which is computed again here. What a node gets back must be a hidden state that it once
sent. What a new node adopts must be the mean of what its neighbors send. Neither may be missed: a node that is offered
its own models takes them, and a new node does not start from zeros beside neighbors that have learned.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from omkl import wire
from omkl.node.halves import Floats
from omkl.node.links import RECENT, LinkState
from omkl.node.protocol import Protocol
from omkl.wire import Kind, WireError
from omkl_lab.torture.learning_oracle import ROUNDING
from omkl_lab.torture.violation import require

MORE = 4  # times as many rounds as were taken since, in what was kept of a node, are surely worth taking


class Life:
    """What was seen of a node since it started.

    Attributes
    ----------
    round, taken
        Where it was, and how many rounds it had taken in all its lives.
    sought
        What the life before had not found out, as the node says.
    answered
        Neighbors that have told who they are.
    owed
        Of which round those have given something back that have yet to tell who they are.
    last
        The round it was last seen at.
    has_models
        Whether it has what it began with: from its disk, from a neighbor, or of its own.
    """

    def __init__(self, node: Protocol, taken: int) -> None:
        self.round, self.taken = node.round, taken
        start = node.neighbors.start
        self.sought = start.sought if start else None
        require(self.sought is None or self.sought.rounds <= taken, "more rounds are remembered than were taken")
        self.answered: set[str] = set()
        self.owed: dict[str, int] = {}
        self.last = node.round
        self.has_models = node.restored


class Change(NamedTuple):
    """How models changed, all that is gossiped of them."""

    before: Floats
    after: Floats
    theta: Floats
    """Models as they were, and as the node began with them."""
    began: Floats


class Beginnings:
    """The present life of each node."""

    def __init__(self) -> None:
        self._lives: dict[str, Life] = {}

    def begin(self, node: Protocol, taken: int) -> None:
        """Watch a node that has just started."""
        self._lives[node.role.id] = Life(node, taken)

    def hear(self, node: Protocol, peer: str, data: bytes) -> None:
        """Note what a neighbor is about to give back."""
        life = self._lives[node.role.id]
        with suppress(WireError):
            if wire.peek(data).kind is Kind.KEPT and peer not in life.answered and not life.has_models:
                wire.read_kept(node.learning.shape, data)
                life.owed[peer] = wire.peek(data).round

    def check(
        self, node: Protocol, models: Floats, said: tuple[int, int | None], is_first: bool, change: Change, taken: int
    ) -> None:
        """Look at models that a node takes: its own, as said in a round of a boot, or its neighbors', of no boot."""
        round_, boot = said
        life = self._lives[node.role.id]
        first, since = life.round, 0 if is_first else taken - life.taken
        if life.sought is not None and boot not in life.sought.boots:
            first, since = life.sought.first, life.sought.rounds + since
        life.has_models = True
        life.owed.clear()
        rounds, least = round_ - first, max(RECENT, since) if is_first else since
        require(rounds > least, f"models of {rounds} rounds are taken for those of {since}")
        method, state = node.role.method, node.learning.state
        if is_first and not since:
            due = method.unpack(models, state).theta + (change.theta.astype(np.float64) - change.began)
            found = state.theta
        else:
            due = change.before + rounds / (rounds + since) * (models.astype(np.float64) - change.before)
            due = np.asarray(method.pack(method.unpack(due.astype(np.float32), state)))  # which centers weights
            found = change.after
        apart = float(np.abs(found - due).max())
        told = f"models given back are {apart:.3g} from what was kept and what was learned since"
        require(apart <= ROUNDING * (1 + float(np.abs(due).max())), told)

    def mean(self, node: Protocol) -> Floats | None:
        """Return the mean of what the neighbors in step say; None where none has learned."""
        links = [link for link in node.links.values() if link.state is LinkState.SYNCED]
        if max((link.round for link in links), default=0) <= RECENT:
            return None
        parts = [link.weight * link.copy.astype(np.float64) for link in links]
        return np.asarray(sum(parts) / sum(link.weight for link in links))

    def take(self, node: Protocol, is_first: bool) -> None:
        """Look at a node that is about to take a round."""
        life = self._lives[node.role.id]
        if is_first and not life.has_models and life.round == 0:
            require(self.mean(node) is None, "begins with zeros beside neighbors that have learned")

    def look(self, node: Protocol, taken: int) -> None:
        """Look whether what was given back to a node is in its models."""
        life = self._lives[node.role.id]
        if node.round < life.last:  # it has gone back, and what is kept is of rounds that were not true
            life.has_models = True
            life.owed.clear()
        life.last = node.round
        if not node.recovery.has_begun:
            return
        least = life.round + MORE * (taken - life.taken + MORE)
        for link in node.links.values():
            if not link.unsure:
                life.answered.add(link.peer)
                told = f"what {link.peer} has given back is not taken"
                require(life.owed.pop(link.peer, 0) <= least, told)
