"""A real network as events: its nodes are asked how they stand, and what has changed is told."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omkl import losses
from omkl.dashboard import events
from omkl.dashboard.events import Event, all_digits, digits
from omkl.dashboard.layout import spread_out
from omkl.dashboard.recorder import SPREAD
from omkl.errors import InputError
from omkl.methods import presets
from omkl.node import metrics
from omkl.node.client import guest
from omkl.node.config import NetworkConfig, load

log = logging.getLogger(__name__)

PERIOD = 0.5  # seconds from question to question
TIMEOUT = 2.0  # seconds after which a node that does not answer counts as gone
STATES = ["synced", "syncing", "connecting", "left out", "refused"]
MOST_COUNTED = 2**53
MOST_TOLD = 200  # letters of names
CONNECTING = STATES.index("connecting")
KEYS = ("loss", "disagreement", "weights", "round")
COUNTS = ("sent_bytes", "resyncs", "frames_dropped")
NO_LINK = {"state": "connecting"} | dict.fromkeys(COUNTS, 0.0)
STRANGE = "answers in words that this page does not know; is it of another version?"

Status = dict[str, Any]
Answers = Mapping[str, Status]
Heard = Mapping[str, Status | None]
"""What the nodes that answer say of themselves, by id; None is what is not understood."""


def understood(answer: bytes, kernels: int) -> Status | None:
    """Return what a node says of itself, each thing of its kind; None where one is not."""
    try:
        told = json.loads(answer)
        links = {
            peer: {"state": STATES[STATES.index(link["state"])]} | {key: _count(link.get(key, 0)) for key in COUNTS}
            for peer, link in told["links"].items()
        }
        status: Status = {
            "round": int(_count(told["round"])),
            "boot": int(_count(told["boot"])),
            "diverged": bool(told["diverged"]),
            "gossip_bytes": _count(told["gossip_bytes"]),
            "weights": [float(weight) for weight in told["weights"]],
        } | {key: None if told[key] is None else float(told[key]) for key in ("loss", "disagreement")}
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return status | {"links": links} if len(status["weights"]) == kernels else None


def _count(value: Any) -> float:
    if not 0 <= value < MOST_COUNTED:
        raise ValueError
    return float(value)


def described(config: NetworkConfig) -> Event:
    """Return the event that comes first."""
    graph, method, members = config.topology.graph, config.method, config.members
    placed = [member.position for member in members]
    return events.network(
        source="network",
        title=f"{config.name}: {'' if graph.name == 'custom' else f'{graph.name} of '}{len(members)} nodes",
        nodes=len(members),
        ids=config.ids,
        positions=spread_out(len(members), graph.edges) if None in placed else placed,
        edges=graph.edges.tolist(),
        kernels=method.labels,
        rounds=None,
        loss=method.objective.name,
        guess=losses.guess(method.objective),
        window=f"mean over the last {metrics.RECENT} labels of each node, about",
        disagreement="distance from its neighbors' hidden states",
        states=STATES,
        settings={
            "network": config.name,
            "mode": config.timing.mode,
            "deadline": f"{config.timing.deadline:g} s",
            "method": presets.called(method),
            "quantizer": method.channel.quantizer.name,
            "inputs": str(config.inputs),
            "TLS": "no" if config.tls is None else "yes",
        },
    )


class Told(NamedTuple):
    """Something to note."""

    kind: str
    text: str
    node: int
    peer: int | None = None


class Changes:
    """Makes events of what the nodes say of themselves, again and again."""

    def __init__(self, config: NetworkConfig) -> None:
        self._ids, self._edges = config.ids, config.topology.graph.edges.tolist()
        self._peers = {id: list(config.neighbors(id)) for id in config.ids}
        self._odd: dict[str, str] = {}  # what was said of nodes that are not as this page's file has them
        self._before: dict[str, Status] = {}  # the last of each node, also of those that are gone
        self._alive = dict.fromkeys(config.ids, False)
        self._states = [CONNECTING] * len(self._edges)
        self._total = 0.0

    def events(self, heard: Heard, at: float) -> list[Event]:
        """Return a frame, after what there is to note."""
        told = [one for k, id in enumerate(self._ids) if id in heard for one in self._oddity(heard[id], k)]
        answers = {id: self._as_known(id, status) for id, status in heard.items() if status is not None}
        top = max((status["round"] for status in answers.values()), default=0)
        told += [one for k in range(len(self._ids)) for one in self._node(answers, k)]
        told += [one for e in range(len(self._edges)) for one in self._link(answers, e)]
        frame = self._frame(answers, top, at)
        self._before |= answers
        return [*(events.note(top, at, *one) for one in told), frame]

    def _oddity(self, status: Status | None, k: int) -> Iterator[Told]:
        """Yield in what a node is not as this page's file has it, once."""
        id, text = self._ids[k], ""
        if status is None:
            text = f"{id} {STRANGE}"
        elif {*status["links"]} != {*self._peers[id]}:
            there, here = (
                ", ".join(sorted(peers))[:MOST_TOLD] or "nobody" for peers in (status["links"], self._peers[id])
            )
            text = f"{id} has links to {there}, by this page's file to {here}; open the page with its file"
        if text != self._odd.get(id, ""):
            yield Told("fault", text, k) if text else Told("recovered", f"{id} is as this page's file has it", k)
            self._odd[id] = text

    def _as_known(self, id: str, status: Status) -> Status:
        """Return a status with the links that this page's file has."""
        return status | {"links": {peer: status["links"].get(peer, NO_LINK) for peer in self._peers[id]}}

    def _node(self, answers: Answers, k: int) -> Iterator[Told]:
        """Yield what has become of a node."""
        id, alive = self._ids[k], self._ids[k] in answers
        before = self._before.get(id)
        if alive != self._alive[id]:
            came = Told("recovered", f"{id} is back", k) if before else Told("info", f"{id} is there", k)
            yield came if alive else Told("fault", f"{id} is gone", k)
        elif alive and before and answers[id]["boot"] != before["boot"]:
            yield Told("recovered", f"{id} has started anew", k)
        if alive and answers[id]["diverged"] and not (before and before["diverged"]):
            yield Told("fault", f"the model of {id} is not finite", k)
        self._alive[id] = alive

    def _link(self, answers: Answers, e: int) -> Iterator[Told]:
        """Yield what has become of a link, which is as its worse end sees it."""
        i, j = self._edges[e]
        ends = [(i, j), (j, i)]
        seen = [(self._ids[k], self._ids[m], k, m) for k, m in ends if self._ids[k] in answers]
        state = max((STATES.index(answers[x]["links"][y]["state"]) for x, y, *_ in seen), default=CONNECTING)
        if state != (before := self._states[e]):
            known = "recovered" if state == 0 else "fault" if before == 0 else "info"
            kind = known if self._before else "info"  # of the first look: so it was found
            yield Told(kind, f"{self._ids[i]} - {self._ids[j]} is {STATES[state]}", i, j)
            self._states[e] = state
        for x, y, k, m in seen:
            if count := self._grown(answers, x, "links", y, "resyncs"):
                yield Told("resync", f"{x} took {count:.0f} snapshot{'s'[: count > 1]} of {y}", k, m)
            if count := self._grown(answers, x, "links", y, "frames_dropped"):
                yield Told("fault", f"{x} dropped {count:.0f} frame{'s'[: count > 1]} of {y}", k, m)

    def _grown(self, answers: Answers, id: str, *path: str) -> float:
        """Return by how much a count has grown; one of a new process begins at zero."""
        now, before = answers.get(id), self._before.get(id)
        if now is None or before is None:
            return 0.0
        return _at(now, path) - (_at(before, path) if now["boot"] == before["boot"] else 0.0)

    def _bits(self, answers: Answers, id: str, *path: str) -> float | None:
        """Return the bits of a count of bytes in a round, since the last answer; None where there was no round."""
        rounds = self._grown(answers, id, "round")
        return 8 * self._grown(answers, id, *path) / rounds if rounds > 0 else None

    def _traffic(self, answers: Answers, i: int, j: int) -> float:
        """Return the bits that a link carries in a round, both ways."""
        ends = ((self._ids[i], self._ids[j]), (self._ids[j], self._ids[i]))
        return sum(self._bits(answers, x, "links", y, "sent_bytes") or 0.0 for x, y in ends)

    def _frame(self, answers: Answers, top: int, at: float) -> Event:
        new = (status["gossip_bytes"] for id, status in answers.items() if id not in self._before)
        self._total += 8 * (sum(new) + sum(self._grown(answers, id, "gossip_bytes") for id in answers))
        bits = [self._bits(answers, id, "gossip_bytes") for id in self._ids]
        known = {key: [answers[id][key] if id in answers else None for id in self._ids] for key in KEYS}
        losses, apart, weights = (_given(known[key]) for key in ("loss", "disagreement", "weights"))
        return {
            "event": "frame",
            "round": top,
            "time": digits(at),
            "loss": digits(float(np.mean(losses))) if losses else None,
            "spread": all_digits(np.percentile(losses, SPREAD)) if losses else None,
            "disagreement": digits(float(np.mean(np.square(apart))) ** 0.5) if apart else None,
            "weights": all_digits(np.mean(weights, axis=0)) if weights else None,
            "bits": digits(float(np.mean(sending))) if (sending := _given(bits)) else None,
            "total": round(self._total),
            "alive": len(answers),
            "node": {
                "loss": all_digits(known["loss"]),
                "disagreement": all_digits(known["disagreement"]),
                "bits": all_digits(bits),
                "alive": [int(id in answers) for id in self._ids],
                "round": known["round"],
                "weights": [None if one is None else all_digits(one) for one in known["weights"]],
            },
            "edge": {"bits": [digits(self._traffic(answers, i, j)) for i, j in self._edges], "state": [*self._states]},
        }


def _at(status: Status, path: tuple[str, ...]) -> float:
    value: Any = status
    for key in path:
        value = value[key]
    return float(value)


def _given(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


class Observer:
    """A thread that asks the nodes of a network how they stand, and hands on the events.

    Where it is given the network's file, it starts over when the file changes: nodes were added, or removed.
    """

    def __init__(
        self, config: NetworkConfig, add: Callable[[Event], None], name: str | None = None, file: Path | None = None
    ) -> None:
        self._add, self._name, self._file = add, name, file
        self._stamp = self._changed()
        self._watch(config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omkl-observer", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._add(described(self._config))
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()
        if self._thread.ident is not None:  # who was told to end before it began
            self._thread.join()
        self._guest.close()

    def _watch(self, config: NetworkConfig) -> None:
        asks = self._name or config.ids[0]
        if not config.access.services(asks).count("status"):
            raise InputError(
                f"access.status does not name {asks}; nodes tell how they stand to those alone whom it names; write "
                f'status = ["{asks if config.tls else "*"}"] there, on every device'
            )
        self._guest, self._config, self._changes = guest(config, TIMEOUT, self._name), config, Changes(config)

    def _changed(self) -> int | None:
        """Return when the file was last written; None if there is none."""
        try:
            return self._file.stat().st_mtime_ns if self._file else None
        except OSError:
            return None

    def _follow(self) -> None:
        """Start over with the file, if it was written anew and makes sense."""
        if (stamp := self._changed()) == self._stamp or stamp is None or self._file is None:
            return
        self._stamp, before = stamp, self._guest
        try:
            self._watch(load(self._file))
        except InputError as error:
            log.warning("%s has changed, and the page goes on with what it was: %s", self._file, error)
            return
        before.close()
        self._add(described(self._config))

    def _run(self) -> None:
        began, failed = time.monotonic(), False
        while not self._stop.wait(PERIOD):
            try:
                self._follow()
                kernels = len(self._config.method.labels)
                told = self._guest.ask(self._config.ids, "status")
                heard = {id: understood(answer, kernels) for id, answer in told.items()}
                for event in self._changes.events(heard, time.monotonic() - began):
                    self._add(event)
            except Exception:  # those after it should be seen
                if not failed:
                    log.exception("the nodes' answers were not shown; the page goes on; this is said once")
                failed = True
