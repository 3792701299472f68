"""What a node that starts does with what its neighbors give back, or say: see ``omkl.node.start``."""

import math

import numpy as np

from omkl.methods import Gossip
from omkl.node.events import Adopted, Begun, Dropped, Recovered
from omkl.node.halves import Floats, quiet, total
from omkl.node.leaps import LEAP, Leaps
from omkl.node.links import RECENT, Kept, LinkState
from omkl.node.neighbors import Neighbors
from omkl.node.start import Start

SETTLED = (LinkState.SYNCED, LinkState.REFUSED)


class Recovery:
    """How a node comes to the models that it begins with."""

    def __init__(self, method: Gossip, neighbors: Neighbors, leaps: Leaps) -> None:
        self._method, self._neighbors, self._leaps = method, neighbors, leaps

    @property
    def awaited(self) -> list[str]:
        """The neighbors that have not answered since the start, and may have kept what the node has lost."""
        start = self._neighbors.start
        return self._unsure if start and start.seeks else []

    @property
    def _unsure(self) -> list[str]:
        return [link.peer for link in self._neighbors.links.values() if link.unsure]

    @property
    def has_begun(self) -> bool:
        """Whether its first round was taken, or is being taken."""
        start = self._neighbors.start
        return start is None or start.begun

    def begin(self, now: float) -> bool:
        """Settle before the first round who this is and what it has lost; return whether that was still to be done."""
        neighbors, start = self._neighbors, self._neighbors.start
        if start is None or self.has_begun:
            return False
        if start.resumed and (absent := self._unsure):
            neighbors.renew(now, f"{', '.join(absent)} may know more of it than the checkpoint")
        start.seeks &= not start.resumed
        start.first = neighbors.learning.round
        self._take(start, now)
        start.begun = True
        if awaited := self.awaited:
            neighbors.events.append(Begun(tuple(awaited)))
        return True

    def go_on(self, now: float) -> None:
        """Take what comes later than the first round."""
        if (start := self._neighbors.start) is not None and start.begun:
            self._take(start, now)

    def _take(self, start: Start, now: float) -> None:
        """Take what neighbors have given back, or as a new node what they say; this is over when all have answered."""
        neighbors, links = self._neighbors, self._neighbors.links.values()
        for claims in start.claims([link.peer for link in links if not link.unsure]):
            (peer, kept), *others = claims.items()
            if all(np.array_equal(kept.hidden, other.hidden) for _, other in others):
                self._recover(peer, kept, start, now)
                neighbors.start = None
                return
            why = f"not what others have kept of our round {kept.round}"
            neighbors.events += [Dropped(peer, why) for peer in claims]
            start.returned |= dict.fromkeys(claims)
        # One that began at round 0 is new.
        if not (start.adopted or start.resumed) and neighbors.learning.round == start.since(None)[1]:
            self._adopt(start)
        if not self.awaited and all(link.state in SETTLED or not link.reachable for link in links):
            neighbors.start = None

    def _recover(self, peer: str, kept: Kept, start: Start, now: float) -> None:
        """Take a hidden state of before for the models, and before the first round for the hidden state too.

        Its round is not believed where no neighbor counts near it: whoever kept it was there, and may since have gone
        back from a round that was never true.
        """
        learning, hidden = self._neighbors.learning, kept.hidden.copy()
        self._begin_with(hidden, kept.round, kept.boot)
        links = self._neighbors.links.values()
        near = max((max(link.shown, link.last) for link in links if not link.unsure), default=0) + LEAP
        if learning.round < kept.round <= near and self._leaps.allow(learning.round, kept.round, now):
            if not start.is_late(kept.boot):
                velocity = self._method.mixing.start(hidden)
                learning.state = learning.state._replace(hidden=hidden, velocity=velocity)
            self._neighbors.skip(kept.round, now)
        self._neighbors.events.append(Recovered(peer, kept.round))

    def _adopt(self, start: Start) -> None:
        """Begin with the mean of what the neighbors in step say, by their weights, unless they begin themselves."""
        neighbors, weights = self._neighbors, self._neighbors.weights
        synced = [link for link in neighbors.links.values() if link.state is LinkState.SYNCED]
        if (last := max((link.round for link in synced), default=0)) <= RECENT + start.since(None)[1]:
            return
        with quiet():
            mean = np.tensordot(weights / weights.sum(), neighbors.copies, axes=1)
        if math.isfinite(total(mean)):
            start.adopted = True
            self._begin_with(mean, last, None)
            neighbors.events.append(Adopted(tuple(link.peer for link in synced)))

    def _begin_with(self, models: Floats, round_: int, boot: int | None) -> None:
        """Let the models be these, as of a round of a boot, with what was learned since."""
        witness = self._neighbors.learning.witness
        if witness is None:
            self._let_be(models, round_, boot)
        else:
            witness.begin(self._let_be, models, round_, boot)

    def _let_be(self, models: Floats, round_: int, boot: int | None) -> None:
        learning, method, start = self._neighbors.learning, self._method, self._neighbors.start
        assert start is not None
        state = learning.state
        with quiet():
            if not start.is_late(boot):
                given = method.unpack(models, state)
                learning.state = given._replace(theta=given.theta + (state.theta - start.theta))
            else:
                own = method.pack(state)
                learning.state = method.unpack(own + np.float32(start.share(round_, boot)) * (models - own), state)
