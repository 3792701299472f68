"""What a node has to find out before its first round: whether its boot is its own, and what it has lost.

A boot must never say two things of one round. One that is drawn at random has said nothing yet. One that is taken from
a checkpoint has said no more than that if the file is the last one it wrote, and may have if it is a copy from before.
The neighbors know: a HELLO says up to which boot and round its receiver is known, and one that names another boot, or a
later round, makes the node take another boot. A neighbor that has not answered until the first round could know more:
then, too, it takes another.

A neighbor that knew another boot, or a later round, answers with KEPT before that: its copy of this node's hidden state
is this node's model but for one quantization error. Of what has come back until the first round the latest is taken.
"""

import itertools
from collections.abc import Collection, Iterator

from omkl.node.halves import Floats
from omkl.node.links import Kept


class Start:
    """A node before its first round.

    Attributes
    ----------
    theta
        The models it began with; what was learned since is added to what comes back.
    resumed
        Whether its boot is one that has spoken before.
    spare
        The boot to take instead.
    seeks
        Whether it wants back what neighbors have kept; not if all that it had acknowledged is in its checkpoint, for
        that is exact.
    returned
        The hidden states that came back, by neighbor.
    """

    def __init__(self, theta: Floats, spare: int, resumed: bool = False) -> None:
        self.theta, self.spare, self.resumed = theta, spare, resumed
        self.seeks = True
        self.returned: dict[str, Kept] = {}

    def renew(self, boot: int) -> int:
        """Return a boot that nobody has shown, in the place of this one."""
        shown = {boot, *(kept.boot for kept in self.returned.values())}
        fresh = next(other % 2**16 for other in itertools.count(self.spare) if other % 2**16 not in shown)
        self.resumed, self.spare = False, fresh + 1
        return fresh

    def claims(self, trusted: Collection[str], after: int, before: int) -> Iterator[dict[str, Kept]]:
        """Yield what trusted neighbors claim of one boot and round between two, by neighbor; the latest first."""
        claims: dict[tuple[int, int], dict[str, Kept]] = {}
        for peer, kept in self.returned.items():
            if self.seeks and peer in trusted and after < kept.round < before:
                claims.setdefault((kept.round, kept.boot), {})[peer] = kept
        for key in sorted(claims, reverse=True):
            yield claims[key]
