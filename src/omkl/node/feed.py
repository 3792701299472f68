"""A stream of lines that feeds a node."""

import errno
import io
import json
import logging
import os
import queue
import select
import stat
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from omkl.errors import DivergedError, InputError
from omkl.node import inputs
from omkl.node.events import Scored
from omkl.node.inputs import Bad, Format, Sample
from omkl.node.labels import Labels, Observed
from omkl.node.node import Node
from omkl.node.runtime import Room

FIONREAD: int | None
try:
    from fcntl import ioctl
    from termios import FIONREAD
except ImportError:  # not everywhere; what lies in a pipe is not told there
    FIONREAD = None

GONE = (errno.EPIPE, errno.ECONNRESET, errno.EBADF)  # what says that nobody reads any more
PAUSE = 0.5  # seconds until a line that could not be written is tried again
AHEAD = 32  # lines read ahead of their round
HOPELESS = 20  # lines that are all refused, from the first one on, end the node
UNLABELLED = 50  # lines that all lack a label, from the first one on, are warned of
MOST_LEFT = 2**20  # bytes that are looked for in a pipe on leaving; it holds 64 KiB unless somebody made it larger
AT_INPUT = 0.2  # seconds after which a thread that reads waits for its input, so that nothing lies there

logger = logging.getLogger(__name__)


class Patient(io.FileIO):
    """A file whose reads wait for bytes, also where the descriptor is set not to: other processes may have the same."""

    waits = True

    def readinto(self, buffer: Any, /) -> int:
        """Return how many bytes were read, 0 at the end; None if it does not wait and there are none."""
        while (count := super().readinto(buffer)) is None and self.waits:
            select.select([self], [], [])
        return count


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Where observations come from.

    Attributes
    ----------
    file
        What to read; ``-`` is standard input.
    format
        How its lines are written; None goes by the file's name, if it ends in .csv, or by the first line.
    label
        The column that holds the label, by name, in CSV with a header.
    strict
        Stop at a bad line; else it is skipped.
    until_end
        Leave when the stream has ended; else serve on.
    """

    file: Path
    format: Format | None = None
    label: str | None = None
    strict: bool = False
    until_end: bool = False

    def __post_init__(self) -> None:
        if str(self.file) == "-":
            if sys.stdin is None:  # its number may be that of any other file by now
                raise InputError("standard input is closed; --input - reads it; open it, as by < FILE")
        elif not self.file.exists():
            raise InputError(f"{self.file} is not a file; a node reads its stream from one, or from -, standard input")

    def open(self) -> "io.BufferedReader[Patient]":
        """Return the file, opened; one that is a pipe waits for who writes to it."""
        # Not sys.stdin: a thread that waits in its lock would keep the interpreter from ending.
        return io.BufferedReader(Patient(0, closefd=False) if str(self.file) == "-" else Patient(self.file))

    def parser(self, columns: int, targets: int = 1) -> inputs.Parse:
        """Return what reads a line of so many inputs, and targets."""
        if self.format is Format.JSONL:
            return inputs.parse_json
        rows = inputs.Csv(columns, self.label, targets)
        is_csv = self.format is Format.CSV or self.file.suffix.lower() == ".csv"
        return rows if is_csv else inputs.Detected(rows)


class Reader:
    """Feeds a node from lines, in threads of its own.

    Lines are read when earlier ones have been taken and, if asked for, their predictions are written: whoever reads
    those slowly slows the stream, never the node.

    Attributes
    ----------
    lines, taken, refused
        How many lines held a sample, how many of them have been predicted and learned, and how many held none.
    left
        How many lines a pipe still held when the node had left, in which none of them is.

    is_file
        Whether the stream is there as a whole, so that its lines may wait.

    Make it before the node starts, and start it after: of what the checkpoint holds, predictions are written too.
    """

    def __init__(self, node: Node, feed: Feed, predictions: TextIO | None, wake: threading.Event) -> None:
        self.lines = self.taken = self.refused = self.left = 0
        self._labels = Labels(node.config.method.objective)
        self._node, self._feed, self._wake = node, feed, wake
        self._output = None if predictions is None else Output(predictions, node.id)
        self._room = Room(AHEAD)
        self._failure: Exception | None = None
        self._ended = self._admitted = self._at_hand = self._labelled = self._stopped = False
        self.is_file = False
        self._gate = threading.Lock()  # of the thread that reads, but while its line waits for those before it
        self._file: io.BufferedReader[Patient] | None = None
        self._kept = 0
        self._scored: queue.SimpleQueue[tuple[dict[str, Any], Scored] | None] = queue.SimpleQueue()
        self._teller = threading.Thread(target=self._tell, name="omkl-tell", daemon=True)
        if self._output is not None:
            node.runtime.carried(self._done_kept)

    def start(self) -> None:
        """Begin to read."""
        self._teller.start()
        threading.Thread(target=self._read, name="omkl-read", daemon=True).start()

    def is_over(self) -> bool:
        """Return whether the node is to leave; raise what is wrong with the stream."""
        if self._failure is not None:
            raise self._failure
        return self._ended and self._feed.until_end

    def piled(self) -> int:
        """Return how many bytes lie in the pipe, 0 where the system does not say."""
        file = self._file
        if FIONREAD is None or file is None:
            return 0
        try:
            return int.from_bytes(ioctl(file.fileno(), FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, ValueError):  # of another kind, or closed just now
            return 0

    def stop(self) -> None:
        """Take no more lines; before the node leaves, so that each is in its checkpoint or is left."""
        self._stopped = self._gate.acquire(timeout=AT_INPUT)

    def look_back(self) -> None:
        """Count what is left of a pipe, once it has been stopped; a file is read again from its first line."""
        if not self._stopped or self._file is None or self._file.closed:
            return
        number = self._file.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            self._file.raw.waits, waited = False, os.get_blocking(number)
            os.set_blocking(number, False)
            try:
                rest = self._file.read(MOST_LEFT) or b""
            finally:
                os.set_blocking(number, waited)  # others may have the same pipe
            self.left = self._at_hand + rest.count(b"\n")

    def finish(self, timeout: float | None) -> None:
        """Write the predictions that are left, if whoever reads them does so in time."""
        self._scored.put(None)
        self._teller.join(timeout)

    def _read(self) -> None:
        try:
            with self._feed.open() as file, self._gate:
                config, self._file = self._node.config, file
                self.is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                parse = self._feed.parser(config.inputs, getattr(config.method.objective, "outputs", 1))
                for number, found in inputs.read(file, parse):
                    self._take(number, found)
                    if self.lines == UNLABELLED and not self._labelled:
                        self._labelled = True  # enough was said
                        self._say_unlabelled(getattr(parse, "names", []))
                self._file = None
            if not self._feed.until_end and not self.is_file:
                self._say_ended()
            if self._feed.until_end and self.refused and not self.lines:
                raise InputError(f"none of {self.refused} lines was taken; the log says why; mend {self._feed.file}")
            self._node.wait()
            self.finish(None)
            self._node.end()
        except Exception as error:
            self._failure = error
        self._ended = True
        self._wake.set()

    def _take(self, number: int, found: Sample | Bad) -> None:
        try:
            if isinstance(found, Bad):
                raise InputError(found.why)
            if not self._admitted:  # else the line before was refused, and has left its place to this one
                self._admitted = self._wait_for_room()
            fields = {"line": number} | ({} if found.id is None else {"id": found.id})
            self._node.admit(Observed(found.x, found.y, self._labels), done=partial(self._done, fields))
            self._admitted = False
            self.lines += 1
            self._labelled |= found.y is not None
        except DivergedError:
            raise
        except InputError as error:
            why = f"line {number}: {error}"
            if self._feed.strict:
                raise InputError(why) from None
            self._node.refuse(why)
            self._count_refused(why)

    def _wait_for_room(self) -> bool:
        self._at_hand = True
        self._gate.release()
        try:
            return self._room.take(None)
        finally:
            self._gate.acquire()
            self._at_hand = False

    def _say_ended(self) -> None:
        """Warn of a sensor that says no more, or that has said nothing: the node looks as well as before."""
        text = f"its stream has ended after {self.lines} lines; the node goes on in its neighbors' rounds"
        logger.warning(text, extra={"omkl": {"node": self._node.id, "event": "ended", "lines": self.lines}})

    def _say_unlabelled(self, names: list[str]) -> None:
        """Warn of a stream without labels: somebody who wants predictions alone may pass over it."""
        inputs = self._node.config.inputs
        named = f" ({', '.join(names)})" if len(names) == inputs else ""
        fewer = f"; if one of them is the label, inputs in network.toml must be {inputs - 1}" if inputs > 1 else ""
        text = (
            f"none of the first {UNLABELLED} lines has a label, so this node learns nothing of its own; it takes "
            f"{inputs} inputs{named}{fewer}"
        )
        extra = {"omkl": {"node": self._node.id, "event": "unlabelled", "names": names}}
        logger.warning(text, extra=extra)

    def _count_refused(self, why: str) -> None:
        """Give up a stream of which nothing is of use: whoever looks at the node would think that it learns."""
        self.refused += 1
        if not self.lines and self.refused == HOPELESS:
            raise InputError(f"none of the first {HOPELESS} lines was taken; {why}")

    def _done(self, fields: dict[str, Any], event: Scored) -> None:
        if self._output is None:
            self._pass()
        else:
            self._scored.put((fields, event))

    def _done_kept(self, event: Scored) -> None:
        self._kept += 1
        self._scored.put(({"kept": self._kept}, event))

    def _pass(self) -> None:
        self.taken += 1
        self._room.give()

    def _tell(self) -> None:
        decide = self._node.config.method.objective.decide
        while (item := self._scored.get()) is not None:
            fields, event = item
            label = decide(event.output).tolist()
            told = {"round": event.round, "label": label, "output": event.output.tolist(), "loss": event.loss}
            if self._output:
                self._output.write(json.dumps(fields | told) + "\n")
            if "kept" not in fields:
                self._pass()


class Output:
    """Lines for whoever reads them; where there is no room for one it waits, and those behind it.

    Each line is an acknowledgement, so none is left out, and what a full disk took half of is continued.
    """

    def __init__(self, file: TextIO, id: str) -> None:
        self._descriptor: int | None = file.fileno()  # a buffer would lose what it cannot write
        self._id, self._before = id, b"\n" if _is_torn(self._descriptor) else b""

    def write(self, line: str) -> None:
        """Write a line, unless nobody reads them any more."""
        rest, held, self._before = self._before + line.encode(), False, b""
        while rest and self._descriptor is not None:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                if error.errno in GONE:
                    self._descriptor = None
                elif not held:
                    held = True
                    self._say(logging.WARNING, "unwritten", f"predictions cannot be written, and wait: {error}", error)
                time.sleep(PAUSE)
        if held and self._descriptor is not None:
            self._say(logging.INFO, "written", "predictions are written again")

    def _say(self, level: int, event: str, text: str, error: OSError | None = None) -> None:
        why = {} if error is None else {"why": str(error)}
        logger.log(level, text, extra={"omkl": {"node": self._id, "event": event} | why})


def _is_torn(descriptor: int) -> bool:
    """Return whether a file ends in the middle of a line, as one does whose node left while the disk was full."""
    file = Path(f"/proc/self/fd/{descriptor}")  # opened anew: the descriptor may be for writing alone
    try:
        if not file.is_file():
            return False
        with file.open("rb") as content:
            return content.seek(0, io.SEEK_END) > 0 and content.seek(-1, io.SEEK_END) >= 0 and content.read() != b"\n"
    except OSError:
        return False
