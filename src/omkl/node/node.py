"""The second door: a node of a real network, in Python."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from omkl.model import Model
from omkl.node import config as configs
from omkl.node.config import NetworkConfig
from omkl.node.events import Event
from omkl.node.learning import Floats
from omkl.node.protocol import Protocol
from omkl.node.runtime import Observation, Runtime, Watch
from omkl.node.transports.zenoh import Endpoints, ZenohTransport


class Node:
    """A node that learns from its own stream and gossips with its neighbors, from ``join`` to ``close``.

    Examples
    --------
    >>> with Node.join("network.toml", "a") as node:  # doctest: +SKIP
    ...     node.predict([0.5, -1.0])
    ...     node.observe([0.5, -1.0], 1)
    """

    def __init__(self, config: NetworkConfig, id: str, watch: Sequence[Watch] = ()) -> None:
        role = config.role(id)
        self.config, self.id, self.watch = config, id, list(watch)
        self.protocol = Protocol(role, secrets.randbelow(2**16), time.monotonic())
        self.runtime = Runtime(self.protocol, self._tell)
        self.transport = ZenohTransport(role, _endpoints(config, id), self.runtime.deliver)
        self.runtime.start(self.transport)

    @classmethod
    def join(cls, network: str | Path | NetworkConfig, id: str, watch: Sequence[Watch] = ()) -> Self:
        """Return node ``id`` of the network that a file describes, at work.

        Neighbors that are not there yet are waited for, up to the deadline, with the first round; they may come at
        any time. ``watch`` are functions that are called with every event, in the node's thread.
        """
        return cls(network if isinstance(network, NetworkConfig) else configs.load(network), id, watch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def predict(self, x: npt.ArrayLike) -> Any:
        """Return the label of one input: -1 or +1, a class number, or a real value, as the loss has it."""
        return self.config.method.objective.decide(self.decision_function(x))[()]

    def decision_function(self, x: npt.ArrayLike) -> Floats:
        """Return the output f of the ensemble, shape ``(C,)``."""
        return self.protocol.predict(x)

    def observe(self, x: npt.ArrayLike, y: npt.ArrayLike | None = None, timeout: float | None = None) -> None:
        """Give the node a sample of its stream; without a label it takes part in the round, and is only predicted.

        Returns at once unless many samples wait for their round already; then it waits for one to be taken.
        """
        learning = self.protocol.learning
        sample = Observation(learning.inputs(x), None if y is None else learning.targets(y))
        if not self.runtime.observe(sample, timeout):
            raise TimeoutError(f"no round was taken in {timeout} s; are the neighbors there? see the node's log")

    def end(self) -> None:
        """Say that the stream has ended: the node goes on in its neighbors' rounds."""
        self.runtime.call(lambda: self.protocol.end(time.monotonic()))

    def model(self) -> Model:
        """Return the model as it is now; save it, and ``omkl.load_model`` reads it."""
        return self.protocol.learning.model()

    def close(self) -> None:
        """Finish the round and leave."""
        self.runtime.stop()
        self.transport.close()

    def _tell(self, event: Event) -> None:
        for watch in self.watch:
            watch(event)


def _endpoints(config: NetworkConfig, id: str) -> Endpoints:
    files = None if config.tls is None else config.tls.of(id)
    return Endpoints(
        listen=config.members[config.index(id)].listen,
        connect=config.endpoints(id),
        tls=None if files is None else {name: str(path) for name, path in vars(files).items()},
    )
