"""A whole network on one machine: a process for every node, over loopback."""

import gc
import multiprocessing
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.node.config import Access, NetworkConfig
from omkl.node.events import Event, Gossiped, Resynced, Scored
from omkl.node.links import LinkState
from omkl.node.node import Node
from omkl.node.protocol import Protocol
from omkl.node.runtime import Observation
from omkl.node.settings import EVERYONE

POLL = 0.1  # seconds between two looks at how far the nodes are
PORTS = 10_000, 32_768  # the first to try, and the first that Linux gives to outgoing connections
OPEN = Access(predict=EVERYONE, observe=EVERYONE, model=EVERYONE)  # of its status the outcome tells
GIVE_UP = 60.0  # seconds without any round anywhere, after which a run has failed

Floats: TypeAlias = npt.NDArray[np.float32]
Progress: TypeAlias = Callable[[int, int], None]


class Outcome(NamedTuple):
    """What one node has to show after its stream."""

    losses: Floats
    """Of every round, scored before learning."""
    theta: Floats
    hidden: Floats
    copies: dict[str, Floats]
    """Its copies of the neighbors' hidden states."""
    sent: int
    """Bytes of its gossip frames, each counted once however many neighbors hear it."""
    resyncs: int
    began: float
    ended: float
    cpu: float
    """Seconds of processor time between the two."""


class Tally:
    """Counts what happens at a node."""

    def __init__(self, progress: Any, index: int) -> None:
        self.losses: list[float] = []
        self.sent = self.resyncs = 0
        self.began = self.ended = self.cpu = 0.0
        self._progress, self._index = progress, index

    def __call__(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Scored(round, _, loss):
                self.losses.append(float("nan") if loss is None else loss)
                self._progress[self._index] = round
                self.ended = time.monotonic()
                if not self.began:
                    self.began, self.cpu = self.ended, time.process_time()
            case Gossiped(_, size, _):
                self.sent += size
            case Resynced():
                self.resyncs += 1


def on_loopback(config: NetworkConfig) -> NetworkConfig:
    """Return the network with every node listening on a free port of this machine, and nothing kept or served."""
    pairs = zip(config.members, free_ports(len(config.members)), strict=True)
    members = (replace(member, listen=f"tcp/127.0.0.1:{port}", metrics=None) for member, port in pairs)
    return replace(config, members=tuple(members), tls=None, access=OPEN, checkpoint=None)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine to listen on.

    Of those that systems do not give to outgoing connections: in a large network one node's connection would take the
    port that another is yet to listen on.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            one, port = stack.enter_context(socket.socket()), random.randrange(*PORTS)
            with suppress(OSError):
                one.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def run(config: NetworkConfig, X: Floats, y: npt.NDArray[Any], progress: Progress | None = None) -> list[Outcome]:
    """Return the outcome of every node, each fed its column of a stream X ``(T, J, d)``, y ``(T, J)``."""
    rounds, nodes = X.shape[:2]
    Protocol(config.role(config.ids[0]), 0, 0.0)  # what is to be compiled is compiled once, not by every process
    context = multiprocessing.get_context("spawn")
    taken = context.Array("q", nodes, lock=False)
    pipes = [context.Pipe() for _ in range(nodes)]
    workers = [
        context.Process(target=_work, args=(config, member.id, X[:, j], y[:, j], taken, j, pipes[j][1]), daemon=True)
        for j, member in enumerate(config.members)
    ]
    for worker in workers:
        worker.start()
    ends = [end for end, _ in pipes]
    try:
        _watch(workers, ends, taken, rounds, progress)
        for end in ends:
            end.send("leave")
        outcomes = [end.recv() for end in ends]
        for worker in workers:
            worker.join(GIVE_UP)
        return outcomes
    finally:
        for worker in workers:
            worker.kill()


def _watch(
    workers: Sequence[Any], ends: Sequence["Connection[Any, Any]"], taken: Any, rounds: int, progress: Progress | None
) -> None:
    """Wait until every node has taken all rounds; refuse to wait for ever."""
    least, since = -1, time.monotonic()
    while not all(end.poll() for end in ends):
        if progress:
            progress(min(taken), rounds)
        if sum(taken) != least:
            least, since = sum(taken), time.monotonic()
        dead = [j for j, worker in enumerate(workers) if worker.exitcode is not None]
        if dead or time.monotonic() > since + GIVE_UP:
            what = f"node {dead[0]} has ended" if dead else f"no round in {GIVE_UP:g} s"
            raise InputError(f"{what} after {min(taken)} of {rounds} rounds; see its messages above")
        time.sleep(POLL)
    for end in ends:
        end.recv()


def _work(
    config: NetworkConfig, id: str, X: Floats, y: npt.NDArray[Any], taken: Any, index: int,
    pipe: "Connection[Any, Any]",
) -> None:  # fmt: skip
    """Run one node until its stream has ended and its neighbors have all they need of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, who ends its nodes
    gc.freeze()  # what is loaded stays: no need to look it over again and again
    tally = Tally(taken, index)
    with Node.join(config, id, [tally]) as node:
        for x, label in zip(X, node.config.method.objective.encode(y), strict=True):
            node.runtime.observe(Observation(x, label))
        while len(tally.losses) < len(X) or not node.runtime.call(lambda: is_level(node)):
            time.sleep(POLL / 2)
        pipe.send("done")
        pipe.recv()
        pipe.send(node.runtime.call(lambda: _outcome(node, tally)))


def is_level(node: Node) -> bool:
    """Return whether this node has absorbed the last round of every neighbor."""
    protocol = node.protocol
    return all(link.round >= protocol.round for link in protocol.links.values() if link.state is LinkState.SYNCED)


def _outcome(node: Node, tally: Tally) -> Outcome:
    state = node.protocol.learning.state
    copies = {peer: link.copy.copy() for peer, link in node.protocol.links.items()}
    losses = np.array(tally.losses, dtype=np.float32)
    return Outcome(
        losses, state.theta, state.hidden, copies, tally.sent, tally.resyncs, tally.began, tally.ended,
        time.process_time() - tally.cpu,
    )  # fmt: skip
