"""Asks a running node from outside of its network, over its zenoh keys (see ``omkl.node.services``)."""

import json
from collections.abc import Sequence

import numpy as np

from omkl.errors import InputError
from omkl.node.config import NetworkConfig
from omkl.node.node import certificate
from omkl.node.transports.zenoh import Endpoints, Guest, RefusedError, ask


def predict(config: NetworkConfig, id: str, x: Sequence[float], timeout: float, name: str | None = None) -> str:
    """Return what a node predicts for an input, as JSON; ``name`` is whose certificate to show, else the node's own."""
    if len(x) != config.inputs or not np.isfinite(x).all():
        raise InputError(f"x is {list(x)}; the network's file says {config.inputs} finite numbers; see inputs")
    try:
        return _ask(config, id, "predict", json.dumps({"x": list(x)}).encode(), timeout, name).decode()
    except RefusedError as error:
        place = config.members[config.index(id)].listen
        raise InputError(f"the node at {place} goes by another file than this: {error}; compare both files") from None


def model(config: NetworkConfig, id: str, timeout: float, name: str | None = None) -> bytes:
    """Return the file of a node's model."""
    return _ask(config, id, "model", b"", timeout, name)


def guest(config: NetworkConfig, timeout: float, name: str | None = None) -> Guest:
    """Return who asks all nodes, with a certificate of a name where the network has TLS: the first node's, else."""
    tls = certificate(config, name or config.ids[0])
    return Guest(config.name, Endpoints(connect=[member.listen for member in config.members], tls=tls), timeout)


def _ask(config: NetworkConfig, id: str, service: str, payload: bytes, timeout: float, name: str | None) -> bytes:
    place = config.members[config.index(id)].listen
    there = Endpoints(connect=[place], tls=certificate(config, name or id))
    return ask(config.name, id, service, payload, there, timeout)
