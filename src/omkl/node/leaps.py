"""How far a node goes on the word of its neighbors, in lock step, where all count the same rounds.

A node that was away skips to the round of its neighbors, and one that knows nobody yet cannot tell which round is true:
it takes the first that it is shown. From then on rounds take time. A neighbor that claims more of them than anybody
could have taken since is not followed, so one that lies moves nobody but those who have just begun.

These find out. Who is at a round that it cannot have counted to in its time, and has a neighbor in reach that stays far
behind, may be the one who was wrong, by a word or by a checkpoint made then. It goes back to that neighbor's round,
under another boot. Nobody leaps to a round of 2^31 or more, half of what fits a frame. Who is there goes back as well,
when somebody begins anew beside it. So neither a lie nor a long life leaves a network with rounds that a node without a
disk cannot come to.
"""

import math

MOST_SKIPPED = 2**31  # rounds beyond it are not skipped to: a neighbor could spend them all at once
LEAP = 2**20  # rounds by which neighbors may be apart without a word of doubt: a day at ten a second
RATE = 10_000  # rounds that a node takes in a second, at most
STAYS = 3  # deadlines for which a neighbor is behind before it is believed: it may be about to skip


class Leaps:
    """What a node knows of the true count of rounds.

    Attributes
    ----------
    back_at
        When to go back, unless who is behind comes forward before; infinity for never.
    """

    def __init__(self, now: float, deadline: float) -> None:
        self.back_at = math.inf
        self._started, self._stays = now, STAYS * deadline
        self._known: tuple[int, float] | None = None

    @property
    def is_new(self) -> bool:
        """Whether nobody was in step with it yet."""
        return self._known is None

    def doubts(self, own: int, now: float) -> bool:
        """Return whether a round is one that it cannot have counted to."""
        return own > min(LEAP + RATE * (now - self._started), MOST_SKIPPED)

    def note(self, round: int, now: float) -> None:  # noqa: A002
        """Note that a round is taken together with others: from here on rounds take time."""
        self._known = round, now

    def allow(self, own: int, to: int, now: float) -> bool:
        """Return whether to skip to a round, and note that it is done."""
        if to >= MOST_SKIPPED and to - own > LEAP:
            return False
        if self._known is None:
            self._known = to, now
            return True
        since, then = self._known
        return to <= since + LEAP + RATE * (now - then)

    def back(self, own: int, others: list[int], now: float) -> int | None:
        """Return the round to go back to, of those that neighbors in reach are at; None for no reason."""
        behind = [at for at in others if at < own - LEAP]
        if not behind or not self.doubts(own, now):
            self.back_at = math.inf
            return None
        self.back_at = min(self.back_at, now + self._stays)
        if now < self.back_at:
            return None
        to = max(1, *behind)  # at round 0 a hidden state would have to be zeros
        self._known, self.back_at = (to, now), math.inf
        return to
