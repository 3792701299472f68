"""A node as a service: fed from lines of text, stopped by a signal, its log written."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TextIO

from omkl import losses
from omkl.node import certificates
from omkl.node.config import NetworkConfig
from omkl.node.door import fitted
from omkl.node.feed import AHEAD, Feed, Reader
from omkl.node.journal import Journal
from omkl.node.node import Node, endpoints
from omkl.node.units import Units

ONCE = 1.0  # seconds within which a signal is the same one again, as when a whole group is told
LOOK = 0.2  # seconds between two looks at how the node does
MANY = AHEAD // 2  # observations; a stream that is faster than rounds keeps as many waiting
OLD, PILE = 5.0, 2**15  # seconds that the oldest of them waits, or bytes in the pipe behind it: half of a pipe
LONG, LONGEST = 30.0, 3600.0  # seconds for which they wait until it is said, first and at most
LAST_WORDS = 2.0  # seconds that predictions may take to be written on leaving


class End(StrEnum):
    """Why a node has left."""

    STREAM = "its stream has ended"
    TERMINATED = "it was told to"
    INTERRUPTED = "it was interrupted"


ENDS = {signal.SIGTERM: End.TERMINATED, signal.SIGINT: End.INTERRUPTED}


class Signals:
    """What the process was told by signals.

    ``wake`` is for other threads: a handler that set it could find the main thread holding its lock.
    """

    def __init__(self) -> None:
        self.wake = threading.Event()
        self.end: End | None = None
        self.export = False
        self._told = 0.0

    def __call__(self, number: int, _: FrameType | None) -> None:
        """Note a signal."""
        if number in ENDS:
            now = time.monotonic()
            if self.end is not None and now > self._told + ONCE:  # who asks again does not want to wait
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            self.end, self._told = ENDS[signal.Signals(number)], self._told or now
        else:
            self.export = True


@contextmanager
def listening() -> Iterator[Signals]:
    """Yield what the process is told by signals."""
    signals, numbers = Signals(), [*ENDS, *([signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else [])]
    before = {number: signal.signal(number, signals) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            # Who was told to leave, and has, may be told again while Python ends: its exit code stays.
            signal.signal(number, signal.SIG_IGN if signals.end and number in ENDS else handler)


def run(
    config: NetworkConfig,
    id: str,
    feed: Feed | None = None,
    predictions: TextIO | None = None,
    export: Path | None = None,
) -> End:
    """Run a node until a signal comes, or its stream ends if that is asked for, and return why it left.

    Parameters
    ----------
    config, id
        The network, and which of its nodes this is.
    feed
        Where observations come from, beside the node's zenoh key.
    predictions
        Where to write what was predicted for each line, as JSON.
    export
        The file of the model, written on leaving and on SIGUSR1.
    """
    journal = Journal(id, {peer: _reached_at(config, id, peer) for peer in config.neighbors(id)})
    journal.say(logging.INFO, "starts", f"starts, as node {id} of {config.name}")
    with (
        listening() as signals,
        fitted(len(config.neighbors(id))),
        Node(config, id, [journal.watch], [journal.tap], [journal.refuse]) as node,
    ):
        announce(journal, node, feed)
        units = Units(node.protocol, journal)
        node.attend(units.watch, units.tap)
        reader = None if feed is None else Reader(node, feed, predictions, signals.wake)
        node.start()
        if reader is not None:
            reader.start()
        end = stay(node, journal, signals, reader, export)
        if reader is not None:
            reader.stop()
        node.close()
        if reader is not None:
            reader.finish(LAST_WORDS)
            reader.look_back()
        if export is not None:
            save(node, journal, export)
    lines, told = ({}, "") if reader is None else counted(reader, node)
    journal.say(logging.INFO, "left", f"left after round {node.protocol.round}: {end}{told}", why=end, **lines)
    return end


def counted(reader: Reader, node: Node) -> tuple[dict[str, int], str]:
    """Return what became of the lines of a stream that were read, and the same in words."""
    lines = {"lines": reader.lines, "taken": reader.taken, "refused": reader.refused, "left": reader.left}
    told = f"; of its stream it took {reader.taken} lines, and refused {reader.refused}"
    waiting = min(reader.lines - reader.taken, len(node.protocol.waiting))
    if untold := reader.lines - reader.taken - waiting:
        lines["unwritten"] = untold
        told += f"; {untold} more are learned, and their predictions are not written"
    if waiting:
        kept = "in the checkpoint, and taken at the next start" if node.keeps else "lost; send them again"
        told += f"; {waiting} more that it had read are {kept}"
    if reader.left:
        told += f"; {reader.left} that lay in the pipe are lost; send them again"
    return lines, told


def stay(node: Node, journal: Journal, signals: Signals, reader: Reader | None, export: Path | None) -> End:
    """Wait until it is time to leave, and return why."""
    backlog = Backlog(journal)
    while signals.end is None:
        signals.wake.wait(LOOK)
        signals.wake.clear()
        node.check()
        if reader is None or not reader.is_file:
            piled = 0 if reader is None else reader.piled()
            backlog.look(len(node.protocol.waiting), node.runtime.oldest, piled, node.config.timing.mode)
        if waited := [peer for peer in journal.remind() if _reached_at(node.config, node.id, peer)]:
            threading.Thread(target=explain, args=(node, journal, waited), name="omkl-explain", daemon=True).start()
        if signals.export:
            signals.export = False
            if export is None:
                journal.say(logging.WARNING, "export", "SIGUSR1 without --export; give the file of the model")
            else:
                save_if_possible(node, journal, export)
        if reader is not None and reader.is_over():
            return End.STREAM
    return signals.end


class Backlog:
    """Warns, ever more rarely, of a stream that is faster than the rounds.

    A node that starts later than its sensor has some lines waiting ever after. That is no reason for a warning.
    """

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal, self._clock = journal, clock
        self._since, self._pause = clock(), LONG

    def look(self, waiting: int, oldest: float, piled: int, mode: str) -> None:
        """Note how many observations wait, for how long the oldest does, and how many bytes lie in the pipe."""
        now = self._clock()
        if waiting < MANY or (oldest < OLD and piled < PILE):
            self._since, self._pause = now, LONG
        elif now >= self._since + self._pause:
            self._since, self._pause = now, min(2 * self._pause, LONGEST)
            text = (
                f"observations come faster than rounds are taken: {waiting} wait, the oldest for {oldest:.0f} s"
                f"{f', and {piled:,} bytes in the pipe for longer' if piled else ''}"
            )
            if mode == "lockstep":
                text += (
                    '; the slowest stream sets the pace of all; if sensors differ much, write mode = "timer" under '
                    "[timing] and pace = false under [learning.method] in every file, and start all nodes anew: omkl "
                    "node reset on each"
                )
            self._journal.say(logging.WARNING, "backlog", text, waiting=waiting, oldest=round(oldest, 1))


def explain(node: Node, journal: Journal, peers: Sequence[str]) -> None:
    """Try to find out why neighbors to whom this node connects are not reached, and say it."""
    tls = endpoints(node.config, node.id).tls
    for peer in peers:
        address = _reached_at(node.config, node.id, peer)
        assert address is not None
        why = certificates.diagnose(address, peer, tls)
        if why.startswith(certificates.ANSWERS) and journal.away(peer) < node.config.timing.deadline:
            continue  # a node that is starting listens before it answers
        if not node.protocol.links[peer].reachable:
            text = f"{peer} is not reached at {address}: {why}"
            journal.say(logging.WARNING, "unreached", text, peer=peer, address=address, why=why)


def save(node: Node, journal: Journal, path: Path) -> None:
    """Write the model: whoever reads the file finds the old one or the new one."""
    node.model().save(path)
    journal.say(logging.INFO, "export", f"the model of round {node.protocol.round} is in {path}", path=str(path))


def save_if_possible(node: Node, journal: Journal, path: Path) -> None:
    """Write the model, or say why not: a full disk is no reason to leave."""
    try:
        save(node, journal, path)
    except OSError as error:
        journal.say(logging.WARNING, "export", f"the model is not written: {error}", path=str(path), why=str(error))


def announce(journal: Journal, node: Node, feed: Feed | None) -> None:
    """Say who this is, who connects to whom, and where things come from."""
    journal.begin()
    config, id = node.config, node.id
    member, past = config.members[config.index(id)], "goes on from" if node.restored else "begins at"
    text = f"joins {config.name} on {member.listen}, {past} round {node.protocol.round}"
    counts = {"round": node.protocol.round, "taken": node.protocol.taken, "lost": node.protocol.lost}
    journal.say(logging.INFO, "joined", text, listen=member.listen, restored=node.restored, **counts)
    for peer in config.neighbors(id):
        address = _reached_at(config, id, peer)
        text = f"connects to {peer} at {address}" if address else f"{peer} connects here"
        journal.say(logging.INFO, "neighbor", text, peer=peer, address=address)
    if (guess := losses.guess(config.method.objective)) is not None:
        journal.say(
            logging.INFO, "guess", f"a loss of {guess:.2f} is that of knowing nothing; less is better", loss=guess
        )
    key = f"omkl/{config.name}/{id}/observe" if config.access.observe else None
    sources = ["standard input" if str(feed.file) == "-" else str(feed.file)] if feed else []
    sources += [f"the zenoh key {key}"] if key else []
    metrics = f"; metrics at http://{member.metrics}/metrics" if member.metrics else ""
    text = f"takes observations from {' and '.join(sources) or 'nobody'}{metrics}"
    journal.say(logging.INFO, "inputs", text, key=key)


def _reached_at(config: NetworkConfig, id: str, peer: str) -> str | None:
    """Return where a node connects to a neighbor, None where that connects to it."""
    listen = config.members[config.index(peer)].listen
    return listen if listen in config.endpoints(id) else None
