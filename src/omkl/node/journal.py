"""What a node says of itself: a line for each event of interest, as text or JSON, through ``logging``."""

import io
import json
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from omkl.node.events import (
    Adopted,
    Begun,
    Differs,
    Diverged,
    Dropped,
    Event,
    Gossiped,
    Moved,
    Recovered,
    Renewed,
    Resynced,
    Scored,
)
from omkl.node.inbox import CLIENTS
from omkl.node.links import LinkState
from omkl.node.neighbors import Send
from omkl.node.transports import Arrival
from omkl.wire import Kind

logger = logging.getLogger(__name__)

PROGRESS = 1.0  # seconds between two lines of progress, at least
FEW = 20  # labels whose mean loss says nothing yet
PAUSE, BURST = 10.0, 5  # in so many seconds so many lines on the same trouble; what happens beyond them is counted
LINK_BURST = 20  # lines on the same link and kind: a neighbor that starts again is worth some
LONGEST_PAUSE = 320.0  # trouble that goes on is told ever more rarely, as who is waited for is
FIRST_REMINDER, LAST_REMINDER = 2.0, 300.0  # seconds between two lines on who is waited for, ever longer
RETURNS = 4  # of a boot that had been replaced; a frame that was late, or damaged, brings one or two
MOST_LINES = 1000  # of the log that wait for who reads it; more are counted, not kept
LAST_WORDS = 2.0  # seconds that the log may take to be written on leaving
DIFFERENCES = {
    "settings": (
        "has other settings of learning or timing, as gamma, momentum, clip, eta, the learner, deadline, patience or "
        "period; both learn on; compare network.toml on both, and restart the node with the older file"
    ),
    "weight": (
        "has another weight for this link, by its graph or rule; the smaller counts; restart the node with the older "
        "file in time"
    ),
}
PLAIN = {
    r"^contracts agree$": "their settings fit",
    r"^level at its round (\d+)$": r"nothing is missing, from its round \1 on",
    r"^snapshot of its round (\d+)$": r"its state of round \1 has come",
    r"^its round (\d+) was all that lacked$": r"its round \1 has come, and nothing else is missing",
}
ADVICE = "lower eta or gamma, scale the inputs, or use a finer quantizer (see omkl explain)"


class LogFormat(StrEnum):
    """How a line of the log is written."""

    TEXT = "text"
    JSON = "json"


class Journal:
    """Writes the log of one node: a watch and a tap of its runtime.

    Parameters
    ----------
    id
        The node's.
    peers
        Its neighbors, and where each is reached, or None where it connects here by itself.
    every
        Rounds from one line of progress to the next.
    """

    def __init__(
        self, id: str, peers: Mapping[str, str | None], every: int = 100, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._id, self._peers, self._every, self._clock = id, peers, every, clock
        self._throttle, self._link_throttle = Throttle(PAUSE, BURST), Throttle(PAUSE, LINK_BURST)
        self._boots = {peer: Boots() for peer in peers}
        self._met = False
        self.begin()

    def begin(self) -> None:
        """Count from now how long neighbors are away: making a node may take some seconds."""
        now = self._clock()
        self._away = dict.fromkeys(self._peers, now)
        self._remind_at, self._pause = now + FIRST_REMINDER, FIRST_REMINDER
        self._progress = Progress(now)

    def away(self, peer: str) -> float:
        """Return for how many seconds a neighbor has been out of reach, 0 if it is not; from any thread."""
        now = self._clock()
        return now - self._away.get(peer, now)

    def say(self, level: int, event: str, text: str, **fields: Any) -> None:
        """Write a line."""
        logger.log(level, text, extra={"omkl": {"node": self._id, "event": event} | fields})

    def say_rarely(self, level: int, event: str, text: str, key: Hashable, **fields: Any) -> None:
        """Write a line, unless some on the same were written just now."""
        self._say_through(self._throttle, level, event, text, key, fields)

    def _say_of(self, peer: str, level: int, event: str, text: str, **fields: Any) -> None:
        """Write a line on a link, unless many were written just now: the last of them is, when that is over."""
        self._say_through(self._link_throttle, level, event, text, peer, fields | {"peer": peer})

    def _say_through(
        self, throttle: "Throttle", level: int, event: str, text: str, key: Hashable, fields: dict[str, Any]
    ) -> None:
        def write(unsaid: int) -> None:
            were = "was" if unsaid == 1 else "were"
            many = f" ({unsaid:,} more like it {were} left out)" if unsaid else ""
            self.say(level, event, text + many, **fields, unsaid=unsaid)

        throttle.write((event, key), self._clock(), write)

    def refuse(self, why: str) -> None:
        """Write that an observation was refused, and count it; from any thread."""
        self._progress.refused += 1
        self.say_rarely(logging.WARNING, "refused", f"no observation, skipped: {why}", None, why=why)

    def watch(self, event: Event) -> None:
        """Write what an event is worth."""
        match event:
            case Scored(_, _, loss):
                self._progress.score(loss)
            case Gossiped():
                self._gossiped(event)
            case Moved(peer, before, after, why):
                level = logging.WARNING if after in (LinkState.LEFT_OUT, LinkState.REFUSED) else logging.INFO
                remedy = "; copy the same network.toml to both, and restart" if after is LinkState.REFUSED else ""
                text = f"{peer} is {after}: {_plainly(why)}{remedy}"
                self._say_of(peer, level, "link", text, before=before, after=after, why=why)
            case Resynced(peer, round):
                text = f"the copy of {peer} is replaced by a snapshot of its round {round}"
                self._say_of(peer, logging.INFO, "resync", text, round=round)
            case Recovered() | Begun() | Adopted() | Renewed():
                self._begins(event)
            case Dropped():
                self._dropped(event)
            case Differs(peer, what):
                self._say_of(peer, logging.WARNING, "differs", f"{peer} {DIFFERENCES[what]}", what=what)
            case Diverged(round):
                text = f"the model is not finite after round {round}; this node stops; {ADVICE}"
                self.say(logging.ERROR, "diverged", text, round=round)

    def _begins(self, event: Recovered | Begun | Adopted | Renewed) -> None:
        """Say with what the node begins, and under which name."""
        match event:
            case Recovered(peer, round):
                text = f"what this node had learned until round {round} is back: {peer} had kept it, up to rounding"
                self.say(logging.INFO, "recovered", text, peer=peer, round=round)
            case Begun(awaited):
                has, whose = ("has", "it has") if len(awaited) == 1 else ("have", "they have")
                text = (
                    f"takes its first round, though {', '.join(awaited)} {has} not answered yet; what {whose} kept of "
                    "this node's models is taken when it comes"
                )
                self.say(logging.WARNING, "begun", text, awaited=awaited)
            case Adopted(peers):
                text = f"is new, and begins with the models of {', '.join(peers)}"
                self.say(logging.INFO, "adopted", text, peers=peers)
            case Renewed(boot, why):
                text = f"takes boot {boot} in place of its own: {why}"
                self.say_rarely(logging.WARNING, "renewed", text, None, boot=boot, why=why)

    def tap(self, item: Any, _: list[Send]) -> None:
        """Note who comes into reach and who leaves it, and who is there twice."""
        if not isinstance(item, Arrival) or item.peer not in self._peers:
            return
        if item.data is None:
            self._moved(item.peer, item.came)
        elif pair := self._boots[item.peer].alternate(item.data):
            text = f"two processes speak as {item.peer}, under the boots {pair[0]} and {pair[1]}; end one of them"
            self.say_rarely(logging.WARNING, "twice", text, item.peer, peer=item.peer, boots=pair)

    def _moved(self, peer: str, came: bool) -> None:
        now = self._clock()
        self._met |= came
        if not came:
            self._away.setdefault(peer, now)
        elif (since := self._away.pop(peer, None)) is not None:
            text = f"{peer} is reached after {now - since:.1f} s"
            self._say_of(peer, logging.INFO, "reached", text, seconds=round(now - since, 3))

    def remind(self) -> list[str]:
        """Say who is waited for, if that is due, and return them, and what was held back; to be called now and then."""
        now, away = self._clock(), sorted(self._away)
        for throttle in (self._throttle, self._link_throttle):
            throttle.settle(now)
        if not away and now >= self._remind_at:  # one that comes and goes is told of no more often
            self._remind_at, self._pause = now + FIRST_REMINDER, FIRST_REMINDER
        elif now >= self._remind_at:
            self._pause = min(2 * self._pause, LAST_REMINDER)
            self._remind_at = now + self._pause
            where = {peer: address and f"tried at {address}" for peer, address in self._peers.items()}
            names = ", ".join(f"{peer} ({where[peer] or 'which connects here'})" for peer in away)
            self.say(logging.WARNING, "waiting", f"waits for {names}", peers=away)
            return away
        return []

    def _dropped(self, event: Dropped) -> None:
        # Anyone may claim any name. Of a neighbor it is mostly what came twice; links tell of the rest.
        peer, why, reason, times = event
        known = peer if peer in self._peers or peer == CLIENTS else None
        level = logging.DEBUG if known and reason == "content" else logging.WARNING
        many = f" {times:,} times" if times > 1 else ""
        text = f"bytes from {known or 'a stranger'} dropped{many}: {why}"
        self.say_rarely(level, "dropped", text, (known, reason), peer=known, why=why, reason=reason, times=times)

    def _gossiped(self, event: Gossiped) -> None:
        progress, now = self._progress, self._clock()
        progress.gossip(event.size)
        if event.round % self._every == 0 and now >= progress.since + PROGRESS:
            fields = progress.summary(now) | {"round": event.round, "neighbors": event.mixed}
            loss = "no new label" if fields["loss"] is None else f"loss {fields['loss']:.4f}"
            if 0 < progress.labels < FEW:
                loss = f"{progress.labels} labels so far, too few for a mean loss"
            alone = "" if self._met or not self._peers else ", as none was ever reached"
            refused = f", {fields['refused']} observations refused" if fields["refused"] else ""
            text = (
                f"round {event.round}: {loss}, {fields['bytes_per_round']:.1f} bytes a round, {event.mixed} of "
                f"{len(self._peers)} neighbors{alone}, {fields['rounds_per_second']:.3g} rounds/s{refused}"
            )
            mostly = fields["refused"] > fields["observations"]
            self.say(logging.WARNING if mostly else logging.INFO, "progress", text, **fields)
            self._progress = Progress(now, progress)


class Boots:
    """Tells from the boots in a neighbor's frames whether two processes run under its id.

    A process that starts again has another boot, and the old one is not seen any more.
    """

    def __init__(self) -> None:
        self._last = self._other = b""
        self._returns = 0

    def alternate(self, data: bytes) -> tuple[int, int] | None:
        """Note a frame; return both boots if two have taken turns for a while."""
        boot = data[1:3]
        if boot == self._last or not data or data[0] & 15 not in (Kind.HELLO, Kind.ASK):  # their own, in full
            return None
        self._returns = self._returns + 1 if boot == self._other else 0
        self._other, self._last = self._last, boot
        if self._returns < RETURNS:
            return None
        return int.from_bytes(self._other, "little"), int.from_bytes(boot, "little")


class Progress:
    """What has happened since the last line of progress; losses since one that told them."""

    def __init__(self, now: float, before: "Progress | None" = None) -> None:
        self.since = now
        self.refused = self._rounds = self._bytes = self.labels = self._taken = 0
        self._loss = 0.0
        if before is not None and before.labels < FEW:
            self.labels, self._loss = before.labels, before._loss

    def score(self, loss: float | None) -> None:
        """Count an observation."""
        self._taken += 1
        if loss is not None:
            self._loss += loss
            self.labels += 1

    def gossip(self, size: int) -> None:
        """Count a round."""
        self._rounds += 1
        self._bytes += size

    def summary(self, now: float) -> dict[str, Any]:
        """Return means; the loss is None where there was no label."""
        rounds = max(1, self._rounds)
        return {
            "loss": self._loss / self.labels if self.labels else None,
            "observations": self._taken,
            "refused": self.refused,
            "bytes_per_round": self._bytes / rounds,
            "rounds_per_second": self._rounds / max(now - self.since, 1e-9),
        }


@dataclass
class Flow:
    """What a throttle knows of things of one kind: a while, how long it is, and what came in it."""

    since: float = -math.inf
    pause: float = 0.0
    seen: int = 0
    held: Callable[[int], object] | None = None


class Throttle:
    """Lets a few things of a kind pass in a while, and counts the others; the last of them passes in the end.

    While there are too many, each while is twice as long as the one before.
    """

    def __init__(self, pause: float, burst: int) -> None:
        self._pause, self._burst = pause, burst
        self._kinds: dict[Hashable, Flow] = {}

    def write(self, kind: Hashable, now: float, write: Callable[[int], object]) -> None:
        """Call a function with how many were held back before it, now or, if no other comes, in the end."""
        if (unsaid := self.pass_on(kind, now)) is not None:
            write(unsaid)
        else:
            self._kinds[kind].held = write

    def pass_on(self, kind: Hashable, now: float) -> int | None:
        """Return how many were held back before this one; None holds it back too."""
        one = self._kinds.setdefault(kind, Flow())
        one.held = None
        if now < one.since + one.pause:
            one.seen += 1
            return 0 if one.seen <= self._burst else None
        unsaid = max(0, one.seen - self._burst)
        goes_on = unsaid and now < one.since + 2 * one.pause
        one.since, one.pause, one.seen = now, min(2 * one.pause, LONGEST_PAUSE) if goes_on else self._pause, 1
        return unsaid

    def settle(self, now: float) -> None:
        """Let the last of what was held back pass, where its while is over."""
        for kind, one in list(self._kinds.items()):
            if one.held is not None and now >= one.since + one.pause:
                held, unsaid = one.held, self.pass_on(kind, now) or 1
                held(unsaid - 1)


class TextLines(logging.Formatter):
    """``2026-01-31T12:00:00Z a: what happened``; unless the level is INFO, it and the event: ``warning [lost]:``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        about = getattr(record, "omkl", {})
        node, event = about.get("node", "omkl"), f" [{about['event']}]" if "event" in about else ""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}{event}: "
        return f"{_time(record)} {node}: {level}{_message(self, record)}"


class JsonLines(logging.Formatter):
    """An object a line: time, level, node, event, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        head = {"time": _time(record), "level": record.levelname.lower()}
        fields = head | getattr(record, "omkl", {}) | {"message": _message(self, record)}
        return json.dumps(fields, default=str)


def _plainly(why: str) -> str:
    """Return in a reader's words what a link says of itself."""
    for pattern, plain in PLAIN.items():
        why = re.sub(pattern, plain, why)
    return why


class Writer(logging.Handler):
    """Writes lines in a thread of its own: a log that nobody reads, or a full disk, holds up no node.

    Lines for which there is no room are left out, and a line in their place says how many. This writes to the
    descriptor: what a buffer cannot write would come up again when Python ends.

    Parameters
    ----------
    descriptor
        Where to; None writes nothing.
    """

    def __init__(self, descriptor: int | None) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: list[str] = []
        self._unwritten = self._missing = 0  # after the lines that wait, and before what is written next
        self._node, self._torn = "omkl", False
        self._is_idle, self._patience = True, LAST_WORDS
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="omkl-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line until it is written, if there is room."""
        line = self.format(record)
        with self._changed:
            self._node, self._is_idle = getattr(record, "omkl", {}).get("node", self._node), False
            if len(self._lines) < MOST_LINES:
                self._lines.append(line)
            else:
                self._unwritten += 1
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written, but not for long; and not again, if that was in vain."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_idle, self._patience):
                self._patience = 0.0

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_idle = not self._lines
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines)
                lines, self._lines, unwritten, self._unwritten = self._lines, [], self._unwritten, 0
            for line in lines:
                self._missing += not (self._tell_missing() and self._write(line))
            self._missing += unwritten
            if unwritten:
                self._tell_missing()

    def _tell_missing(self) -> bool:
        """Say how many lines are not here, if any; return whether that could be written."""
        if self._missing:
            text = f"{self._missing:,} lines of this log were not written: nobody read it, or its disk was full"
            about = {"node": self._node, "event": "unlogged", "lines": self._missing}
            level = {"levelno": logging.WARNING, "levelname": "WARNING"}
            if not self._write(self.format(logging.makeLogRecord({"msg": text, "omkl": about} | level))):
                return False
            self._missing = 0
        return True

    def _write(self, line: str) -> bool:
        """Write a line, and return whether all of it could be."""
        rest = b"\n" * self._torn + line.encode(errors="backslashreplace") + b"\n"
        try:
            while rest and self._descriptor is not None:
                written = os.write(self._descriptor, rest)
                rest, self._torn = rest[written:], True
        except OSError:
            return False
        self._torn = False
        return True


def handler(lines: LogFormat) -> logging.Handler:
    """Return what writes the log to stderr."""
    try:
        writer: logging.Handler = Writer(None if sys.stderr is None else sys.stderr.fileno())
    except io.UnsupportedOperation:  # a notebook's stderr, or one in memory: it is never full
        writer = logging.StreamHandler()
    writer.setFormatter(JsonLines() if lines is LogFormat.JSON else TextLines())
    return writer


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    text = record.getMessage()
    return f"{text}\n{formatter.formatException(record.exc_info)}" if record.exc_info else text
