"""A record of what happened in a run, to read after a failure and to compare two runs."""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from omkl.node.events import Event, Gossiped, Scored


class Entry(NamedTuple):
    """Something that happened: a fault, if ``what`` is text, or an event of a node."""

    now: float
    id: str
    what: str | Event

    def __str__(self) -> str:
        text = self.what if isinstance(self.what, str) else _tell(self.what)
        return f"{self.now:10.4f}  {self.id:<2} {text}"


class Trace(list[Entry]):
    """All that happened, in order."""

    def note(self, now: float, id: str, what: str | Event) -> None:
        """Note one thing."""
        self.append(Entry(now, id, what))

    def digest(self) -> str:
        """Return a number for all of it."""
        return _hash(map(str, self))

    def course(self) -> str:
        """Return a number for what happened, without what was computed: the same whatever rounds the arithmetic."""
        return _hash(str(entry._replace(what=_uncomputed(entry.what))) for entry in self)

    def tail(self, count: int) -> str:
        """Return the last things that happened, a line each."""
        return "\n".join(map(str, self[-count:]))


def _hash(lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def _uncomputed(what: str | Event) -> str | Event:
    """Return an event without its numbers of the models, and without the size that their levels have when packed."""
    if isinstance(what, Scored):
        return what._replace(output=np.zeros(0, np.float32), loss=None)
    return what._replace(size=0) if isinstance(what, Gossiped) else what


def _tell(event: Event) -> str:
    values: dict[str, Any] = event._asdict()
    if isinstance(event, Scored):
        values["output"] = [value.hex() for value in event.output.tolist()]
        values["loss"] = None if event.loss is None else float(event.loss).hex()
    return " ".join([type(event).__name__, *(f"{name}={value}" for name, value in values.items())])
