"""The second door: a node of a real network, in Python."""

import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from omkl.algorithm import normalize
from omkl.errors import DiskError, DivergedError
from omkl.model import Model
from omkl.node import config as configs
from omkl.node.config import NetworkConfig
from omkl.node.halves import Floats
from omkl.node.labels import Labels, Observed
from omkl.node.links import LinkState
from omkl.node.metrics import Metrics, disagreement
from omkl.node.persistence import saved
from omkl.node.persistence.disk import Disk
from omkl.node.protocol import MOST_WAITING
from omkl.node.runtime import Done, Each, Guarded, Observation, Refuse, Runtime, Tap, Watch
from omkl.node.services import Services
from omkl.node.transports.zenoh import Endpoints, ZenohTransport
from omkl.node.web import Page, Server

LOOK = 0.5  # seconds between two looks whether the program has ended
STUCK, STUCK_DEADLINES = 30.0, 10  # seconds, and deadlines, that a node's thread may take for one thing: a slow disk
READY = (LinkState.SYNCED, LinkState.LEFT_OUT)


class Node:
    """A node that learns from its own stream and gossips with its neighbors, from ``join`` to ``close``.

    Use ``omkl.Node.join`` to make one. The node does all that the network's file says: it goes on from its checkpoint
    and writes new ones, serves metrics and health, and answers on its zenoh keys (see ``omkl.node.services``).

    ``Node(...)`` itself only takes the ports, and ``start`` sets it to work. A node that nobody closes is closed when
    the main thread ends.

    Parameters
    ----------
    config
        The network, as ``omkl.node.config.load`` returns it.
    id
        Which of its nodes this is.
    watch
        Functions that are called with every event, in the node's thread.
    taps
        Functions that are called with every frame that comes, and with what the node sends then.
    refuse
        Functions that are called with the reason when an observation cannot be taken.
    disk
        Where checkpoints are kept, for simulations of faults; None is the real disk.

    Examples
    --------
    >>> with Node.join("network.toml", "a") as node:  # doctest: +SKIP
    ...     node.predict([0.5, -1.0])
    ...     node.observe([0.5, -1.0], 1)
    """

    def __init__(
        self,
        config: NetworkConfig,
        id: str,
        watch: Sequence[Watch] = (),
        taps: Sequence[Tap] = (),
        refuse: Sequence[Refuse] = (),
        disk: Disk | None = None,
    ) -> None:
        self.config, self.id, self._labels = config, id, Labels(config.method.objective)
        self._watches, self._taps = Each(map(Guarded, watch)), Each(map(Guarded, taps))
        self.refuse = Each(refuse)
        """Tells of an observation that nobody could take, and why."""
        role, boot, member = config.role(id), secrets.randbelow(2**16), config.members[config.index(id)]
        with ExitStack() as stack:
            self._saver = stack.enter_context(saved(role, config.checkpoint, boot, self._watches, disk))
            self._watches.append(self._saver.watch)
            self.protocol = self._saver.protocol
            self._metrics: Metrics | None = None
            if member.metrics is not None or config.access.status:
                self._metrics = self._measured()
            if member.metrics is not None and self._metrics is not None:
                stack.callback(Server(member.metrics, self._pages(self._metrics)).start().close)
            self.runtime = Runtime(
                self.protocol, self._watches, tap=self._taps if self._taps else None, settle=self._saver.settle
            )
            inbox = self.runtime.inbox
            self.transport = ZenohTransport(role, endpoints(config, id), inbox.deliver, inbox.drop)
            stack.callback(self.transport.close)
            self.services = Services(self)
            self._closed = threading.Event()
            threading.Thread(target=self._close_at_exit, name="omkl-exit").start()
            self._open = stack.pop_all()

    def start(self) -> Self:
        """Begin to learn, gossip and serve; return this. Close it if that fails."""
        try:
            self._saver.begin(time.monotonic())  # the last checkpoint is used up now that the ports are had
            self.runtime.start(self.transport)
            self.services.declare(self.transport)
        except BaseException:
            self.close()
            raise
        return self

    def attend(self, watch: Watch, tap: Tap) -> None:
        """Call more functions with what happens, from ``start`` on."""
        self._watches.append(Guarded(watch))
        self._taps.append(Guarded(tap))

    @classmethod
    def join(cls, network: str | Path | NetworkConfig, id: str, watch: Sequence[Watch] = ()) -> Self:
        """Start node ``id`` of the network that a file describes, and return it.

        Its first round waits for neighbors that are not there yet, up to the deadline. They may come later at any time.
        """
        return cls(network if isinstance(network, NetworkConfig) else configs.load(network), id, watch).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def predict(self, x: npt.ArrayLike) -> Any:
        """Return the prediction for one input: as the loss says, a label -1 or +1, a class number, or any number."""
        return self.config.method.objective.decide(self.decision_function(x))[()]

    def decision_function(self, x: npt.ArrayLike) -> Floats:
        """Return the output f of the ensemble, shape ``(C,)``."""
        output = self.protocol.predict(x)
        if self._metrics is not None:
            self._metrics.answer()
        return output

    def observe(
        self,
        x: npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        timeout: float | None = None,
        done: Done | None = None,
    ) -> None:
        """Give the node a sample of its stream. A sample without a label makes a round and is only predicted.

        This returns at once, unless many samples wait for their round already: then it waits until one has been taken.
        When the sample has been taken, the node's thread calls ``done`` with the prediction and its loss. ``wait``
        waits for all samples. If the loss has two classes, labels are -1 and 1, or 0 and 1.
        """
        self.admit(Observed(x, y, self._labels), timeout, done)

    def admit(self, given: Observed, timeout: float | None = None, done: Done | None = None) -> None:
        """Give the node a sample of a source that has labels of its own, as ``observe`` does."""
        learning = self.protocol.learning
        target = None if given.y is None else learning.targets(given.y, given.labels)
        done = done if self._metrics is None else self._metrics.scoring(target, done)
        sample = Observation(learning.inputs(given.x), target, done)
        until = None if timeout is None else time.monotonic() + timeout
        self.check()
        while not self.runtime.observe(sample, _pause(until)):
            self.check()
            if until is not None and time.monotonic() >= until:
                why = "their round" if self.unsaved is None else f"a checkpoint, which fails ({self.unsaved})"
                raise TimeoutError(f"{MOST_WAITING} observations wait for {why}; that is the most; observe later")

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all samples so far have been taken. Samples that still wait when a node is closed are lost."""
        taken = threading.Event()
        self.runtime.call(lambda: self.runtime.after_all(taken.set))
        until = None if timeout is None else time.monotonic() + timeout
        while not taken.wait(_pause(until)):
            self.check()
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"{len(self.protocol.waiting)} observations are not taken after {timeout:g} s")

    def check(self) -> None:
        """Raise if the node cannot go on: its model has diverged, or its thread has ended."""
        if self.protocol.diverged:
            raise DivergedError(
                f"the model of {self.id} is not finite after round {self.protocol.round}; a node must stay finite; "
                "lower eta or gamma, scale the inputs, or use a finer quantizer (see omkl explain)"
            )
        self.runtime.check()

    def end(self) -> None:
        """Say that the stream has ended: the node goes on in its neighbors' rounds."""
        self.runtime.call(lambda: self.protocol.end(time.monotonic()))

    def model(self) -> Model:
        """Return the model as it is now. You can save it, and ``omkl.load_model`` reads the file."""
        return self.protocol.learning.model()

    def close(self) -> None:
        """Finish the round, write the checkpoint and leave; after the first time nothing is left to do."""
        self._closed.set()
        with self._open.pop_all():
            if self.runtime.is_alive:
                self.runtime.stop()
                try:
                    self._saver.end()
                except OSError as error:
                    told = f"the last checkpoint is not written ({error}); a start goes on from the one before, if any"
                    raise DiskError(f"{told}; see to the disk") from None
                if not self.protocol.diverged:  # what could not be saved before is on the disk now
                    self.runtime.acknowledge()

    def status(self) -> dict[str, Any]:
        """Return how the node stands, in the node's thread: the metrics that it keeps, its weights and its links.

        ``disagreement`` is the root mean square of the distances between its hidden state and its copies of its
        neighbors', None where no neighbor is in step.
        """
        protocol = self.protocol
        state, links = protocol.learning.state, protocol.links
        totals = {"loss": None, "gossip_bytes": 0.0, "links": {}} if self._metrics is None else self._metrics.totals()
        standing = {
            "round": protocol.round,
            "taken": protocol.taken,
            "boot": protocol.neighbors.boot,
            "diverged": protocol.diverged,
            "disagreement": disagreement(protocol),
            "weights": normalize(state.log_weights).tolist(),
        }
        each = {peer: {"state": link.state.value} | totals["links"].get(peer, {}) for peer, link in links.items()}
        return standing | totals | {"links": each}

    def _close_at_exit(self) -> None:
        """Close a node that nobody has closed: zenoh's threads would keep the interpreter from ending."""
        while not self._closed.wait(LOOK):
            if not threading.main_thread().is_alive():
                self.close()

    def _measured(self) -> Metrics:
        """Return metrics that are kept from here on."""
        metrics = Metrics(
            self.protocol, None if self.config.checkpoint is None else self._saver, lambda: self.runtime.oldest
        )
        self._watches.append(metrics.watch)
        self._taps.append(metrics.tap)
        self.refuse.append(lambda _: metrics.refuse())
        return metrics

    def _pages(self, metrics: Metrics) -> dict[str, Callable[[], Page]]:
        return {
            "/metrics": lambda: Page(200, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
            "/healthz": lambda: _report(self._is_well, self._status()),
            "/readyz": lambda: _report(self.is_ready and not metrics.mostly_refused, self._status()),
        }

    @property
    def restored(self) -> bool:
        """Whether it goes on from a checkpoint."""
        return self.protocol.restored

    @property
    def unsaved(self) -> str | None:
        """Why the last checkpoint could not be written; None if it could, or none is kept."""
        return self._saver.failure

    @property
    def durable(self) -> bool:
        """Whether an observation is on the disk before it is acknowledged: before its ``done`` is called."""
        return self._saver.durable

    @property
    def is_ready(self) -> bool:
        """Whether the node's rounds wait for nobody: every neighbor is in step and level, or left out as silent."""
        links = self.protocol.links.values()
        return self.runtime.is_alive and all(link.state in READY for link in links) and not self.protocol.behind

    @property
    def _is_well(self) -> bool:
        """Whether the node's thread runs, is not stuck, and its model is finite."""
        stuck = self.runtime.is_at_one_thing(max(STUCK, STUCK_DEADLINES * self.config.timing.deadline))
        return self.runtime.is_alive and not stuck and not self.protocol.diverged

    @property
    def keeps(self) -> bool:
        """Whether it keeps a checkpoint."""
        return self.config.checkpoint is not None

    def _status(self) -> dict[str, Any]:
        links = {peer: link.state.value for peer, link in self.protocol.links.items()}
        protocol, refused = self.protocol, 0 if self._metrics is None else self._metrics.refused
        counts = {"round": protocol.round, "taken": protocol.taken, "lost": protocol.lost, "refused": refused}
        differ = {peer: link.differs for peer, link in protocol.links.items() if link.differs}
        awaited = [peer for peer in protocol.awaited if protocol.links[peer].state is not LinkState.REFUSED]
        lacks = {"awaited": awaited, "behind": protocol.behind}
        return {"node": self.id, **counts, "unsaved": self.unsaved, "links": links, "differ": differ, **lacks}


def endpoints(config: NetworkConfig, id: str) -> Endpoints:
    """Return where a node of the network listens and connects, and its files of TLS."""
    return Endpoints(
        listen=config.members[config.index(id)].listen,
        connect=config.endpoints(id),
        tls=certificate(config, id),
        access=config.access,
    )


def certificate(config: NetworkConfig, name: str) -> dict[str, str] | None:
    """Return the files of TLS of a node or of another name; None where the network has none."""
    return None if config.tls is None else {key: str(path) for key, path in vars(config.tls.of(name)).items()}


def _report(good: bool, status: dict[str, Any]) -> Page:
    return Page(200 if good else 503, "application/json", json.dumps(status).encode() + b"\n")


def _pause(until: float | None) -> float:
    """Return how long to wait before another look whether the node is alive."""
    return 1.0 if until is None else max(0.0, min(1.0, until - time.monotonic()))
