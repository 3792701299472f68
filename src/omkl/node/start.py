"""What a node finds out when it starts: whether its boot is its own, what it has lost, and with what it begins.

A boot must never say two things of one round. One that is drawn at random has said nothing yet. One that is taken from
a checkpoint has said no more than that if the file is the last one it wrote, and may have if it is a copy from before.
The neighbors know: a HELLO says up to which boot and round its receiver is known, and one that names another boot, or a
later round, makes the node take another boot. A neighbor that has not answered until the first round could know more:
then, too, it takes another.

A neighbor that knew another boot, or a later round, answers with KEPT before that: its copy of this node's hidden state
is this node's model but for one quantization error. Of what has come back until the first round the latest is taken,
models and hidden state. A neighbor may be reached later than that. What it gives back then goes into the models alone:
neighbors hold copies of what the hidden state has become since, so the change goes out through the quantizer as any
other does. Models of before and of since count by the rounds that are in them. To add one to the other would count
twice what both have learned, and a learner that is quick has learned most of it within some dozen samples.

A node that nobody can give anything back to, for it is new, begins with the mean of what its neighbors say.

A node may end before all its neighbors have answered. So its checkpoint says that it still wants back what it has lost,
and how many rounds it has taken without: in its next life these count beside what comes back then.
"""

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

from omkl.node.halves import Floats
from omkl.node.links import RECENT, Kept

MOST_LIVES = 8  # whose boots are remembered; neighbors know the last


class Sought(NamedTuple):
    """How far a life came that ended before all neighbors had answered.

    What is kept of ``boots``, its own and of lives before it that had not found out either, has the rounds in it. The
    rest is as of ``Start``.
    """

    boots: tuple[int, ...]
    first: int
    rounds: int
    adopted: bool


class Start:
    """A node from its start until it knows what it has lost.

    Attributes
    ----------
    theta
        The models it began with; what was learned until the first round is added to what comes back.
    resumed
        Whether its boot is one that has spoken before.
    spare
        The boot to take instead.
    sought
        What the life before had not found out, if so.
    seeks
        Whether it wants back what neighbors have kept; not if all that it had acknowledged is in its checkpoint, for
        that is exact.
    returned
        The hidden states that came back, by neighbor; None for one that cannot be used.
    asked
        Neighbors that have said how far they know it.
    begun
        Whether it is past its first round, or in the middle of it.
    first, rounds
        The round it was at before that, and how many it has taken since.
    adopted
        Whether it has begun with what its neighbors say.
    """

    def __init__(self, theta: Floats, spare: int, resumed: bool = False, sought: Sought | None = None) -> None:
        self.theta, self.spare, self.resumed, self.sought = theta, spare, resumed, sought
        self.seeks = True
        self.returned: dict[str, Kept | None] = {}
        self.asked: set[str] = set()
        self.begun = False
        self.first = self.rounds = 0
        self.adopted = sought is not None and sought.adopted

    def saved(self, boot: int) -> Sought | None:
        """Return what the next life is to know, if this one ends now."""
        is_open = self.seeks and (self.sought is not None or not self.resumed)
        boots = dict.fromkeys((*(self.sought.boots if self.sought else ()), boot))
        return Sought((*boots,)[-MOST_LIVES:], *self.since(None), self.adopted) if is_open else None

    def since(self, boot: int | None) -> tuple[int, int]:
        """Return how many rounds were taken that are not in what was kept of a boot, and after which."""
        if self.sought is None or boot in self.sought.boots:
            return self.first, self.rounds
        return self.sought.first, self.sought.rounds + self.rounds

    def is_late(self, boot: int | None) -> bool:
        """Return whether what comes of a boot now counts beside what was learned since, and is not just taken."""
        return self.begun or self.since(boot)[1] > 0

    def renew(self, boot: int) -> int:
        """Return a boot that nobody has shown, in the place of this one."""
        shown = {boot, *(kept.boot for kept in self.returned.values() if kept)}
        fresh = next(other % 2**16 for other in itertools.count(self.spare) if other % 2**16 not in shown)
        self.resumed, self.spare = False, fresh + 1
        return fresh

    def lacks(self, peer: str, known: tuple[int, int], boot: int) -> bool:
        """Return whether a neighbor that knows us so may have sent what has not come: it is to be asked once more."""
        lacks = self.seeks and known[0] != boot and known[1] > 0 and peer not in self.returned.keys() | self.asked
        self.asked.add(peer)
        return lacks

    def claims(self, trusted: Collection[str]) -> Iterator[dict[str, Kept]]:
        """Yield what trusted neighbors claim of one boot and round that is worth taking; the latest first."""
        # Fewer rounds than RECENT are worth less than what quantization has taken of the models.
        claims: dict[tuple[int, int], dict[str, Kept]] = {}
        for peer, kept in self.returned.items():
            if not (self.seeks and kept and peer in trusted):
                continue
            first, rounds = self.since(kept.boot)
            if kept.round > first + max(RECENT, rounds):
                claims.setdefault((kept.round, kept.boot), {})[peer] = kept
        for key in sorted(claims, reverse=True):
            yield claims[key]

    def share(self, round: int, boot: int | None) -> float:  # noqa: A002
        """Return what models of before count, as of a round of a boot, against those of since."""
        first, rounds = self.since(boot)
        return (round - first) / (round - first + rounds)
