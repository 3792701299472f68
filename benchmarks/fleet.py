"""Daemons of one network, for runs in which they are killed, frozen, cut off or told to leave.

Each ``omkl node`` is fed line by line. The prediction that it writes for a line is the acknowledgement, after which it
gets the next one. Whoever is started again goes on with the first sample that was not acknowledged. What the daemons
log is kept in a file for each, and says how their links are.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from omkl.node import config
from omkl.node.cluster import free_ports
from omkl.node.events import Event, Resynced
from omkl.node.links import Link
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.node.transports import memory

POLL = 0.02  # seconds between two looks
PATIENCE = 60.0  # seconds after which what is waited for has failed to happen
PROBES = 50  # rounds within which all links are in step after faults have stopped

NETWORK = """
name = "fleet"
inputs = {inputs}
{nodes}
[learning]
topology = "{topology}"
seed = 3
{method}
[timing]
deadline = {deadline}
patience = {patience}
[checkpoint]
folder = "{folder}"
every = {every}
"""

SMALL = """\
[learning.method]
name = "gossip"
kernels = {gaussian = [1, 3, 5]}
features = 20
eta = 1.0
gamma = 0.5
quantizer = {name = "nearest", step = 2.5}
"""

COMPILED = "from omkl.cli import main; main()"
PLAIN = f"import sys; sys.modules['numba'] = None; {COMPILED}"  # which takes 1.7 s of a core to load

Sample = tuple[Sequence[float], int | None]


def write_network(
    folder: Path, ids: Sequence[str], *, hosts: Sequence[str] = (), topology: str = "path", deadline: float = 5.0,
    patience: float = 1.0, every: int | str = 1, kept: Path = Path("kept"), inputs: int = 2, method: str = SMALL,
) -> Path:  # fmt: skip
    """Return the file of a network on free ports of this machine, or of the hosts."""
    addresses = zip(ids, hosts or ["127.0.0.1"] * len(ids), free_ports(len(ids)), strict=True)
    nodes = "".join(f'[[nodes]]\nid = "{id}"\nlisten = "tcp/{host}:{port}"\n' for id, host, port in addresses)
    path, every = folder / "network.toml", json.dumps(every)
    path.write_text(
        NETWORK.format(
            nodes=nodes, topology=topology, deadline=deadline, patience=patience, folder=kept, every=every,
            inputs=inputs, method=method,
        )
    )  # fmt: skip
    return path


class Ack(NamedTuple):
    """What a daemon said of a sample."""

    round: int
    loss: float | None


class Daemon:
    """One ``omkl node``, through all its lives.

    Attributes
    ----------
    samples, acks
        What it is to be given, and what it has acknowledged of that, in order.
    """

    def __init__(self, network: Path, id: str, prefix: Sequence[str] = (), *, compiled: bool = True) -> None:
        self.id, self.log = id, network.with_name(f"{id}.log")
        self.samples: list[Sample] = []
        self.acks: list[Ack] = []
        self._command = [
            *prefix, sys.executable, "-c", COMPILED if compiled else PLAIN, "node", "--network", str(network),
            "--id", id, "--input", "-", "--until-end", "--predictions", "--log-format", "json",
        ]  # fmt: skip
        self._lock, self._given = threading.Lock(), True
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin a life; a daemon leaves by itself when its parent has ended."""
        pipe, self._given = subprocess.PIPE, False
        with self.log.open("a") as log:
            print(json.dumps({"event": "started", "acknowledged": len(self.acks)}), file=log, flush=True)
            self.process = subprocess.Popen(self._command, text=True, stdin=pipe, stdout=pipe, stderr=log)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        self.feed([])

    def feed(self, samples: Iterable[Sample]) -> None:
        """Give it these after those it has."""
        with self._lock:
            self.samples.extend(samples)
            self._give()

    def tell(self, number: int) -> None:
        """Send it a signal."""
        assert self.process
        self.process.send_signal(number)

    def kill(self) -> None:
        """End its life at once."""
        if self.process is not None:
            self.process.kill()
            self._end()

    def leave(self) -> int:
        """Let it leave in order, and return its exit code; a sample that it had yet to take is in its checkpoint."""
        self.tell(signal.SIGTERM)
        return self.left()

    def left(self) -> int:
        """Return the exit code of one that was told to leave."""
        code = self._end()
        last = self.events()[-1]
        self.acks += [Ack(-1, None)] * (last.get("lines", 0) - last.get("taken", 0))
        return code

    def close(self) -> None:
        """Let go of what it is fed by."""

    @property
    def is_idle(self) -> bool:
        """Whether all that it was given is acknowledged."""
        return len(self.acks) == len(self.samples)

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return what it has logged, in all its lives, or the lines of one kind."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        told = [{"event": ""} | json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in told if name in (None, event["event"])]

    def links(self) -> dict[str, str]:
        """Return the state of each link of its present life."""
        links: dict[str, str] = {}
        for event in self.events():
            if event["event"] == "joined":
                links = {}
            elif event["event"] == "neighbor":
                links[event["peer"]] = "connecting"
            elif event["event"] == "link":
                links[event["peer"]] = event["after"]
        return links

    def lost(self) -> int:
        """Return how many acknowledged observations were in no checkpoint that it went on from."""
        lost: set[int] = set()
        before = 0
        for event in self.events():
            if event["event"] == "started":
                before = event["acknowledged"]
            elif event["event"] == "joined":
                lost |= {k for k in range(before) if self.acks[k].round > event["round"]}
        return len(lost)

    def short(self) -> int:
        """Return by how much what it had taken, when it went on, fell short of what it had acknowledged, at most."""
        short = before = 0
        for event in self.events():
            if event["event"] == "started":
                before = event["acknowledged"]
            elif event["event"] == "joined":
                short = max(short, before - event["taken"])
        return short

    def _give(self) -> None:
        if self.process is None or self._given or self.is_idle:
            return
        x, y = self.samples[len(self.acks)]
        assert self.process.stdin
        self._given = True
        with suppress(OSError):  # it was killed
            self.process.stdin.write(json.dumps({"x": list(x)} | ({} if y is None else {"y": y})) + "\n")
            self.process.stdin.flush()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout
        for line in process.stdout:
            if not line.endswith("\n"):
                return  # cut short by a kill
            told = json.loads(line)
            with self._lock:
                self.acks.append(Ack(told["round"], told["loss"]))
                self._given = False
                self._give()

    def _end(self) -> int:
        assert self.process
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        with self._lock:
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe
                with suppress(OSError):  # a line that it did not read
                    pipe.close()
            self.process = None
        return code


class Fleet:
    """The daemons of a network, from ``start`` to ``leave``; whoever still lives at the end is killed.

    Those that are not ``compiled`` go without Numba, as where the extra ``fast`` is not installed, and start sooner.
    Those of ``kinds`` are made as these have it.
    """

    def __init__(
        self, network: Path, prefixes: dict[str, Sequence[str]] | None = None, *, compiled: bool = True,
        kinds: Mapping[str, Callable[..., Daemon]] | None = None,
    ) -> None:  # fmt: skip
        self.config, kinds = config.load(network), kinds or {}
        self.daemons = {
            id: kinds.get(id, Daemon)(network, id, (prefixes or {}).get(id, ()), compiled=compiled)
            for id in self.config.ids
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for daemon in self.daemons.values():
            daemon.close()

    def __getitem__(self, id: str) -> Daemon:
        return self.daemons[id]

    def start(self) -> None:
        for daemon in self.daemons.values():
            daemon.start()

    def kill(self) -> None:
        for daemon in self.daemons.values():
            daemon.kill()

    def leave(self) -> None:
        """Let all leave in order, at once."""
        for daemon in self.daemons.values():
            daemon.tell(signal.SIGTERM)
        codes = {id: daemon.left() for id, daemon in self.daemons.items()}
        assert not any(codes.values()), codes

    def feed(self, samples: Sequence[Sequence[Sample]]) -> None:
        """Give each daemon its part, in the order of the network's file."""
        for daemon, part in zip(self.daemons.values(), samples, strict=True):
            daemon.feed(part)

    @property
    def acknowledged(self) -> int:
        return sum(len(daemon.acks) for daemon in self.daemons.values())

    def wait(self, until: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait for something to happen, as long as samples are acknowledged meanwhile."""
        since, seen = time.monotonic(), self.acknowledged
        while not until():
            if self.acknowledged != seen:
                since, seen = time.monotonic(), self.acknowledged
            if time.monotonic() > since + patience:
                raise TimeoutError(f"nothing in {patience:g} s: {self.status()}")
            time.sleep(POLL)

    def status(self) -> dict[str, Any]:
        return {
            id: (f"{len(one.acks)} of {len(one.samples)}", one.acks[-1:], one.links())
            for id, one in self.daemons.items()
        }

    def drain(self) -> None:
        """Wait until every sample is acknowledged."""
        self.wait(lambda: all(daemon.is_idle for daemon in self.daemons.values()))

    def settle(self) -> int:
        """Return after how many rounds all links are synced and in step, and still are a round later.

        The rounds are made by samples without a label, which are predicted and not learned. In lock step a node may be
        ahead of its neighbors by one. A node that was long in starting is tried again only after up to 16 seconds, in
        which its neighbor makes many rounds without it: they count once there has been time for that.
        """
        self.drain()
        since, level, probe = time.monotonic(), 0, 0
        while probe < PROBES or time.monotonic() < since + PATIENCE:
            self.feed([[([0.0] * self.config.inputs, None)]] * len(self.daemons))
            self.drain()
            level, probe = level + 1 if self.is_level() else 0, probe + 1
            if level == 2:
                return probe - 2
        raise TimeoutError(f"not in step after {probe} rounds, {PATIENCE:g} s: {self.status()}")

    def is_level(self) -> bool:
        """Return whether all links are synced, and neighbors a round apart at most, or as many as go with a sample."""
        links = [
            (one, self.daemons[peer], state) for one in self.daemons.values() for peer, state in one.links().items()
        ]
        ends = [(a.acks[-1].round, b.acks[-1].round) for a, b, state in links if state == "synced"]
        return len(ends) == len(links) and all(abs(a - b) <= self._apart(min(a, b)) for a, b in ends)

    def _apart(self, at: int) -> int:
        """Return how many rounds lie between two samples, from a round on."""
        if (schedule := self.config.method.schedule) is None:
            return 1
        learned = schedule.learned(at)
        return max(1, schedule.rounds(learned + 1) - schedule.rounds(learned))

    def copies(self) -> tuple[int, int]:
        """Return how many copies the checkpoints hold, and how many are their owner's bit for bit.

        For daemons that have left in order. The last round may have been under way then: it is finished in memory. A
        copy that needs more than the messages of that, a snapshot, counts as wrong.
        """
        kept, replaced = self.config.checkpoint, set()
        assert kept

        def watch(_: float, id: str, event: Event) -> None:
            if isinstance(event, Resynced):
                replaced.add((id, event.peer))

        network = memory.Network(watch=watch)
        for id in self.config.ids:
            network.join(checkpoint.restore(kept.file(id), self.config.role(id), 0, 0.0))
        nodes = network.nodes
        pairs = [(link, nodes[peer], (id, peer)) for id, node in nodes.items() for peer, link in node.links.items()]
        wrong = {pair for link, owner, pair in pairs if link.round == owner.round and not _is_copy(link, owner)}
        network.run(until=len(nodes) * self.config.timing.deadline)
        wrong |= replaced | {pair for link, owner, pair in pairs if not _is_copy(link, owner)}
        return len(pairs), len(pairs) - len(wrong)

    def lost(self) -> int:
        """Return how many acknowledged observations crashes have undone."""
        return sum(daemon.lost() for daemon in self.daemons.values())


def _is_copy(link: Link, owner: Protocol) -> bool:
    level = (link.boot, link.round) == (owner.neighbors.boot, owner.round)
    return level and np.array_equal(link.copy, owner.learning.state.hidden)
