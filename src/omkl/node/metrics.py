"""What a node counts, for Prometheus; base units, and a registry of its own."""

import time
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from omkl.node.events import Dropped, Event, Gossiped, Lost, Recovered, Resynced, Scored, Unsaved
from omkl.node.inbox import CLIENTS, STRANGERS, WHY
from omkl.node.links import Link, LinkState
from omkl.node.neighbors import Send
from omkl.node.protocol import Protocol
from omkl.node.transports import Arrival

DIFFERENCES = ("settings", "weight")
RECENT = 100  # observations over which the loss is averaged, about
BY_PEER = ("sent_bytes", "received_bytes", "resyncs", "frames_dropped")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one node: a watch and a tap of its runtime."""

    def __init__(self, protocol: Protocol) -> None:
        self.registry = CollectorRegistry()
        self._links = protocol.links
        self._at: float | None = None
        self._mean, self._labels = 0.0, 0
        self._rounds = self._counter("rounds", "Rounds of gossip taken.")
        self._gossip = self._counter("gossip_bytes", "Bytes of gossip frames, each once however many hear it.")
        self._duration = Histogram(
            "omkl_round_duration_seconds",
            "Time from one round of gossip to the next, waiting for observations and neighbors included.",
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._loss = Gauge(
            "omkl_loss", f"Mean loss of the last {RECENT} labels or so, scored before learning.", registry=self.registry
        )
        observations = self._counter("observations", "Observations taken, or refused as bad.", ["kind"])
        self._kinds = {kind: observations.labels(kind) for kind in ("labelled", "unlabelled", "bad")}
        self._lost = self._counter("observations_lost", "Observations acknowledged before a crash and lost in it.")
        self._unsaved = self._counter("checkpoint_failures", "Checkpoints that could not be written.")
        self._recoveries = self._by_peer("recoveries", "Times that a neighbor gave this node its models back.")
        self._sent = self._by_peer("sent_bytes", "Bytes of frames sent to a neighbor in reach.")
        self._received = self._by_peer("received_bytes", "Bytes of frames received from a neighbor.")
        self._resyncs = self._by_peer("resyncs", "Snapshots that replaced the copy of a neighbor's hidden state.")
        self._dropped = self._counter("frames_dropped", "Frames that were of no use or too many.", ["peer", "reason"])
        for peer in (*self._links, STRANGERS, CLIENTS):
            for reason in ("content", *WHY):
                self._dropped.labels(peer, reason)
        self._show_links()

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
        gossip = 0.0
        for sample in (sample for family in self.registry.collect() for sample in family.samples):
            kind, peer = sample.name.removeprefix("omkl_").removesuffix("_total"), sample.labels.get("peer")
            if kind in BY_PEER and peer in links:
                links[peer][kind] += sample.value
            elif kind == "gossip_bytes":
                gossip = sample.value
        return {"loss": self._mean if self._labels else None, "gossip_bytes": gossip, "links": links}

    def refuse(self) -> None:
        """Count an observation that was not taken."""
        self._kinds["bad"].inc()

    def _score(self, loss: float | None) -> None:
        self._kinds["unlabelled" if loss is None else "labelled"].inc()
        if loss is not None:
            self._labels = min(self._labels + 1, RECENT)
            self._mean += (loss - self._mean) / self._labels
            self._loss.set(self._mean)

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"omkl_{name}_total", text, labels or [], registry=self.registry)

    def _by_peer(self, name: str, text: str) -> dict[str, Counter]:
        counter = self._counter(name, text, ["peer"])
        return {peer: counter.labels(peer) for peer in self._links}

    def _show_links(self) -> None:
        up = Gauge("omkl_peer_up", "1 if a neighbor is in reach.", ["peer"], registry=self.registry)
        states = Gauge("omkl_link_state", "1 for the state a link is in.", ["peer", "state"], registry=self.registry)
        text = "1 if a neighbor's file is another: in settings, or in the weight of the link alone."
        differs = Gauge("omkl_peer_differs", text, ["peer", "what"], registry=self.registry)
        for peer, link in self._links.items():
            up.labels(peer).set_function(partial(_is_up, link))
            for what in DIFFERENCES:
                differs.labels(peer, what).set_function(partial(_differs_in, link, what))
            for state in LinkState:
                states.labels(peer, state.replace(" ", "_")).set_function(partial(_is_in, link, state))


def _is_up(link: Link) -> float:
    return float(link.reachable)


def _differs_in(link: Link, what: str) -> float:
    return float(link.differs == what)


def _is_in(link: Link, state: LinkState) -> float:
    return float(link.state is state)
