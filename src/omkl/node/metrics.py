"""What a node counts, for Prometheus; base units, and a registry of its own.

Counters follow the node's events, in its thread. Gauges are read when somebody asks, in the thread of whoever asks: a
reading may then mix two rounds, which a figure on a screen may, and the node never waits for it.
"""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector

from omkl.node.events import Dropped, Event, Gossiped, Lost, Recovered, Resynced, Scored, Unsaved
from omkl.node.halves import Floats, quiet
from omkl.node.inbox import CLIENTS, STRANGERS, WHY
from omkl.node.links import Link, LinkState
from omkl.node.neighbors import Send
from omkl.node.persistence import Saver
from omkl.node.protocol import Protocol
from omkl.node.runtime import Done
from omkl.node.transports import Arrival

DIFFERENCES = ("settings", "weight")
RECENT = 100  # observations over which the loss is averaged, about
FEW = 10  # observations that are enough to say that most are refused
BY_PEER = ("sent_bytes", "received_bytes", "resyncs", "frames_dropped")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one node: a watch and a tap of its runtime.

    Attributes
    ----------
    refused
        Observations that were not taken.

    Parameters
    ----------
    protocol
        The node.
    saver
        What keeps it on the disk; None where nothing is kept.
    oldest
        Returns for how many seconds the oldest observation waits.
    """

    def __init__(
        self, protocol: Protocol, saver: Saver | None = None, oldest: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.registry = _Registry()
        self._links = protocol.links
        self._objective = protocol.role.method.objective
        self._at: float | None = None
        self._loss, self._right, self._bad = Recent(), Recent(), Recent()
        self.refused = 0
        self._of_links: dict[str, Counter] = {}
        self._rounds = self._counter("rounds", "Rounds of gossip taken.")
        self._gossip = self._counter("gossip_bytes", "Bytes of gossip frames, each once however many hear it.")
        self._duration = Histogram(
            "omkl_round_duration_seconds",
            "Time from one round of gossip to the next, waiting for observations and neighbors included.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._gauge("loss", f"Mean loss of the last {RECENT} labels or so, scored before learning.", self._loss.read)
        observations = self._counter("observations", "Observations taken, or refused as bad.", ["kind"])
        self._kinds = {kind: observations.labels(kind) for kind in ("labelled", "unlabelled", "bad")}
        self._lost = self._counter("observations_lost", "Acknowledged observations in no checkpoint at the start.")
        self._predictions = self._counter("predictions", "Predictions answered, over the network or to a program.")
        self._unsaved = self._counter("checkpoint_failures", "Checkpoints that could not be written.")
        self._recoveries = self._by_peer("recoveries", "Times that a neighbor gave this node its models back.")
        self._sent = self._by_peer("sent_bytes", "Bytes of frames sent to a neighbor in reach.")
        self._received = self._by_peer("received_bytes", "Bytes of frames received from a neighbor.")
        self._resyncs = self._by_peer("resyncs", "Snapshots that replaced the copy of a neighbor's hidden state.")
        self._dropped = self._of_links["frames_dropped"] = self._counter(
            "frames_dropped", "Frames that were of no use or too many.", ["peer", "reason"]
        )
        for peer in (*self._links, STRANGERS, CLIENTS):
            for reason in ("content", *WHY):
                self._dropped.labels(peer, reason)
        self._show_node(protocol)
        self._show_learning(protocol)
        self._show_links()
        text = "For how long the oldest observation waits to be learned and acknowledged, 0 if none does."
        self._gauge("observations_waiting_seconds", text, oldest)
        if protocol.role.timing.mode == "lockstep":
            self._show_lag(protocol)
        if saver is not None:
            text = "Observations taken and in no checkpoint yet."
            self._gauge("observations_unsaved", text, lambda: protocol.taken - saver.kept)

    def watch(self, event: Event) -> None:
        """Count an event."""
        match event:
            case Scored(_, _, loss):
                self._score(loss)
            case Gossiped(_, size, _):
                now = time.monotonic()
                self._rounds.inc()
                self._gossip.inc(size)
                if self._at is not None:
                    self._duration.observe(now - self._at)
                self._at = now
            case Resynced(peer):
                self._resyncs[peer].inc()
            case Lost(observations):
                self._lost.inc(observations)
            case Unsaved():
                self._unsaved.inc()
            case Recovered(peer):
                self._recoveries[peer].inc()
            case Dropped(peer, _, reason, times):
                known = peer if peer in self._links or peer == CLIENTS else STRANGERS
                self._dropped.labels(known, reason).inc(times)

    def tap(self, item: Any, sends: list[Send]) -> None:
        """Count the bytes of what came and went."""
        if isinstance(item, Arrival) and item.data is not None and item.peer in self._received:
            self._received[item.peer].inc(len(item.data))
        for peer, data in sends:
            if peer is not None:
                self._sent[peer].inc(len(data))
            else:
                for reached in (link.peer for link in self._links.values() if link.reachable):
                    self._sent[reached].inc(len(data))

    def totals(self) -> dict[str, Any]:
        """Return the recent loss, None before the first, the bytes of gossip, and what is counted of every link."""
        links: dict[str, dict[str, float]] = {peer: dict.fromkeys(BY_PEER, 0.0) for peer in self._links}
        for kind in BY_PEER:
            for sample in _samples(self._of_links[kind]):
                if (peer := sample.labels["peer"]) in links:
                    links[peer][kind] += sample.value
        (gossip,) = (sample.value for sample in _samples(self._gossip))
        loss = self._loss.mean if self._loss.count else None
        return {"loss": loss, "gossip_bytes": gossip, "links": links}

    def refuse(self) -> None:
        """Count an observation that was not taken."""
        self.refused += 1
        self._bad.add(1.0)
        self._kinds["bad"].inc()

    @property
    def mostly_refused(self) -> bool:
        """Whether more than half of the last observations were not taken; some are needed to say so."""
        return self._bad.count >= FEW and self._bad.mean > 0.5

    def answer(self) -> None:
        """Count a prediction that was asked for."""
        self._predictions.inc()

    def scoring(self, y: Floats | None, done: Done | None) -> Done | None:
        """Return what is called with the prediction of an observation: it counts whether it was right, then ``done``.

        An event does not hold the label, which nobody else asks for.
        """
        if y is None or not self._is_decided:
            return done

        def score(event: Scored) -> None:
            self._right.add(float(self._objective.score(event.output, y)))
            if done is not None:
                done(event)

        return score

    def _score(self, loss: float | None) -> None:
        self._bad.add(0.0)
        self._kinds["unlabelled" if loss is None else "labelled"].inc()
        if loss is not None:
            self._loss.add(loss)

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"omkl_{name}_total", text, labels or [], registry=self.registry)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"omkl_{name}", text, registry=self.registry).set_function(read)

    def _by_peer(self, name: str, text: str) -> dict[str, Counter]:
        counter = self._of_links[name] = self._counter(name, text, ["peer"])
        return {peer: counter.labels(peer) for peer in self._links}

    def _show_node(self, protocol: Protocol) -> None:
        role = protocol.role
        labels = {"version": version("omkl"), "network": role.network, "id": role.id}
        build = Gauge(
            "omkl_build_info", "1; the labels say what runs, and who it is.", [*labels], registry=self.registry
        )
        build.labels(**labels).set(1)
        ProcessCollector(registry=self.registry)

    def _show_learning(self, protocol: Protocol) -> None:
        self._gauge("round", "The round that the node is at; nodes in lock step share it.", lambda: protocol.round)
        text = "Observations that wait for their round."
        self._gauge("observations_waiting", text, lambda: len(protocol.waiting))
        text = "Root mean square of the distances from the node's hidden state to those of neighbors in step."
        self._gauge("disagreement", text, lambda: _or_nan(disagreement(protocol)))
        self._gauge("model_norm", "Length of the node's hidden state.", lambda: _length(protocol.learning.hidden))
        nothing = np.zeros(protocol.learning.shape[1], dtype=np.float32)
        self._is_decided = not math.isnan(float(self._objective.score(nothing, nothing)))
        if self._is_decided:
            text = f"Share of the last {RECENT} labels or so that were predicted right, before learning."
            self._gauge("accuracy_ratio", text, self._right.read)

    def _show_lag(self, protocol: Protocol) -> None:
        text = "Rounds that a neighbor has shown beyond this node's; negative where it is behind."
        ahead = Gauge("omkl_peer_rounds_ahead", text, ["peer"], registry=self.registry)
        for peer, link in self._links.items():
            ahead.labels(peer).set_function(partial(_rounds_ahead, protocol, link))

    def _show_links(self) -> None:
        up = Gauge("omkl_peer_up", "1 if a neighbor is in reach.", ["peer"], registry=self.registry)
        states = Gauge("omkl_link_state", "1 for the state a link is in.", ["peer", "state"], registry=self.registry)
        text = "1 if a neighbor's file is another: in settings, or in the weight of the link alone."
        differs = Gauge("omkl_peer_differs", text, ["peer", "what"], registry=self.registry)
        for peer, link in self._links.items():
            up.labels(peer).set_function(partial(_is, link, "reachable", True))
            for what in DIFFERENCES:
                differs.labels(peer, what).set_function(partial(_is, link, "differs", what))
            for state in LinkState:
                states.labels(peer, state.replace(" ", "_")).set_function(partial(_is, link, "state", state))


class _Registry(CollectorRegistry):
    """Metrics without the times at which they were made, a second line for each, which nobody asks for.

    The library's own switch is one for the whole process, and that is not ours.
    """

    def collect(self) -> Iterator[Metric]:
        """Yield the families of samples."""
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class Recent:
    """The mean over the last values, about: each weighs 1 / ``RECENT``, and the first ones more."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def add(self, value: float) -> None:
        """Take a value in."""
        self.count = min(self.count + 1, RECENT)
        self.mean += (value - self.mean) / self.count

    def read(self) -> float:
        """Return the mean; not a number before the first."""
        return self.mean if self.count else math.nan


def disagreement(protocol: Protocol) -> float | None:
    """Return how far a node is from its neighbors, as far as it knows; None where none is in step.

    It is the root mean square of the distances between its hidden state and its copies of theirs.
    """
    own = protocol.learning.hidden
    with quiet():
        apart = [_length(link.copy - own) for link in protocol.links.values() if link.state is LinkState.SYNCED]
    return math.sqrt(math.fsum(one**2 for one in apart) / len(apart)) if apart else None


def _length(state: Floats) -> float:
    with quiet():
        return math.sqrt(np.sum(np.square(state, dtype=np.float64)))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _samples(counter: Counter) -> list[Any]:
    return [one for family in counter.collect() for one in family.samples if one.name.endswith("_total")]


def _rounds_ahead(protocol: Protocol, link: Link) -> float:
    known = max((*tuple(link.inbox), link.round, link.shown))  # a tuple: the node's thread may add to the inbox
    return float(known - protocol.round) if link.boot is not None else math.nan


def _is(link: Link, name: str, value: object) -> float:
    return float(getattr(link, name) == value)
