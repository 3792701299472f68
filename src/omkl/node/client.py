"""Asks a running node from outside of its network, over its zenoh keys (see ``omkl.node.services``)."""

import json
from collections.abc import Sequence

from omkl.node.config import NetworkConfig
from omkl.node.node import endpoints
from omkl.node.transports.zenoh import Endpoints, ask


def predict(config: NetworkConfig, id: str, x: Sequence[float], timeout: float) -> str:
    """Return what a node predicts for an input, as JSON."""
    return _ask(config, id, "predict", json.dumps({"x": list(x)}).encode(), timeout).decode()


def model(config: NetworkConfig, id: str, timeout: float) -> bytes:
    """Return the file of a node's model."""
    return _ask(config, id, "model", b"", timeout)


def _ask(config: NetworkConfig, id: str, name: str, payload: bytes, timeout: float) -> bytes:
    there = endpoints(config, id)
    assert there.listen is not None
    return ask(config.name, id, name, payload, Endpoints(connect=[there.listen], tls=there.tls), timeout)
