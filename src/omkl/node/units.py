"""Says when inputs are in units that the method does not expect, or when their scale begins anew."""

import logging
from typing import Any

import numpy as np

from omkl import scaling
from omkl.node.events import Adopted, Event, Recovered
from omkl.node.journal import Journal
from omkl.node.protocol import Protocol
from omkl.node.runtime import Observation
from omkl.scaling import Floats

ROWS = 50  # that are looked at before it is said
FAR, WIDE, NARROW = 3.0, 5.0, 0.1  # a mean beyond, a deviation above or below these is not about 0 and 1


class Units:
    """Looks at the first observations of a node: a watch and a tap of its runtime.

    Where inputs are standardized, or compared with rows of a file that are in the same units, any scale will do.
    """

    def __init__(self, protocol: Protocol, journal: Journal) -> None:
        self._protocol, self._journal = protocol, journal
        role = protocol.role
        self._seen = None if role.standardize or role.calibration is not None else scaling.start(role.inputs)

    def watch(self, event: Event) -> None:
        """Tell that a node whose models are those of others, or came back, has no scale yet."""
        learning = self._protocol.learning
        if isinstance(event, Recovered | Adopted) and learning.moments and learning.moments.seen < ROWS:
            text = (
                "the scale of inputs is not kept by neighbors and begins anew (standardize = true): predictions are "
                "worse for some hundred observations"
            )
            self._journal.say(logging.WARNING, "rescaled", text, seen=learning.moments.seen)

    def tap(self, item: Any, _: Any) -> None:
        """Look at an observation."""
        if self._seen is None or not isinstance(item, Observation):
            return
        self._seen = scaling.update(self._seen, np.asarray(item.x, dtype=np.float64))
        if self._seen.seen == ROWS:
            mean, deviation = self._seen.mean, np.sqrt(self._seen.squares / (ROWS - 1))
            self._seen = None
            if is_odd(mean, deviation):
                self._tell(mean, deviation)

    def _tell(self, mean: Floats, deviation: Floats) -> None:
        means, deviations = (", ".join(f"{number:.3g}" for number in numbers) for numbers in (mean, deviation))
        text = (
            f"inputs have means {means} and deviations {deviations}; the method expects about 0 and 1, and learns "
            "little from others; scale them by the same numbers on all devices, or, if all nodes see like data, write "
            "standardize = true under [learning] in every file, and start all nodes anew: omkl node reset on each"
        )
        fields = {"means": mean.tolist(), "deviations": deviation.tolist()}
        self._journal.say(logging.WARNING, "units", text, **fields)


def is_odd(mean: Floats, deviation: Floats) -> bool:
    """Return whether a column is far from mean 0 and deviation 1; one that is always near 0 says nothing."""
    small = (deviation > 0) & (deviation < NARROW)
    return bool((small | (deviation > WIDE) | (np.abs(mean) > FAR)).any())
