"""The events that the page shows, one JSON object a line: of a simulation, of a network, and of a saved run alike.

    network   what there is: nodes, links, places, kernels; whoever reads starts over with it
    frame     how it stands after a round
    note      a fault, a resync, a node that came back
    end       there are no more

A run is a file of them, ``events.jsonl``. Numbers have four digits: they are drawn, not computed with.
"""

import json
import math
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

VERSION = 1
FILE = "events.jsonl"
UP, DOWN = "up", "down"

Event: TypeAlias = Mapping[str, Any]


def network(
    *,
    source: str,
    title: str,
    nodes: int,
    ids: Sequence[str],
    positions: Any,
    edges: Any,
    kernels: Sequence[str],
    rounds: int | None,
    loss: str,
    window: str,
    disagreement: str,
    states: Sequence[str],
    settings: Mapping[str, str],
    guess: float | None = None,
) -> Event:
    """Return the event that comes first.

    ``window`` says over what losses are averaged; ``guess`` is the loss of a constant guess, where there is one.
    """
    given = {key: value for key, value in locals().items() if key != "positions"}
    return {
        "event": "network",
        "version": VERSION,
        "started": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "writer": [socket.gethostname(), os.getpid()],
        **given,
        "positions": [[digits(x), digits(y)] for x, y in positions],
    }


def note(at: int, time: float, kind: str, text: str, node: int | None = None, peer: int | None = None) -> Event:
    """Return an event for the timeline: ``"fault"``, ``"resync"``, ``"recovered"`` or ``"info"``."""
    return {
        "event": "note", "round": at, "time": digits(time), "kind": kind, "node": node, "peer": peer, "text": text,
    }  # fmt: skip


def end(time: float, text: str, failed: bool = False) -> Event:
    """Return the last event."""
    return {"event": "end", "time": digits(time), "text": text, "failed": failed}


def line(event: Event) -> str:
    """Return an event as a line of JSON."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n"


def digits(value: float | None) -> float | None:
    """Return a number with four digits; None where it is none."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def all_digits(values: Iterable[float | None]) -> list[float | None]:
    """Return the same of many."""
    return [digits(value) for value in values]
