"""What happened in a run, for the reader of a failure and for comparing two runs."""

import hashlib
from typing import Any, NamedTuple

from omkl.node.events import Event, Scored


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
        return hashlib.blake2b("\n".join(map(str, self)).encode(), digest_size=8).hexdigest()

    def tail(self, count: int) -> str:
        """Return the last things that happened, a line each."""
        return "\n".join(map(str, self[-count:]))


def _tell(event: Event) -> str:
    values: dict[str, Any] = event._asdict()
    if isinstance(event, Scored):
        values["output"] = [value.hex() for value in event.output.tolist()]
        values["loss"] = None if event.loss is None else event.loss.hex()
    return " ".join([type(event).__name__, *(f"{name}={value}" for name, value in values.items())])
