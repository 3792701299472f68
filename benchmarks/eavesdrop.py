"""What messages tell somebody who hears them all: how nodes predict, and which rows they have learned.

    python -m benchmarks.eavesdrop rows banana       frames of nodes in memory: their models, and rows and labels
    python -m benchmarks.eavesdrop rows credit_card
    python -m benchmarks.eavesdrop times             who has taken an observation, by who speaks first
    python -m benchmarks.eavesdrop links             two real nodes with and without TLS, and a relay between them
    python -m benchmarks.eavesdrop shared            what a file of landmarks tells of the rows behind it

Nobody here looks into a node. The listener gets frames, decodes them, and knows what a greeting tells: the method's
settings, the seed, and with them the features, but for landmarks that are rows. What it makes of that is compared with
what the nodes did. The attacks are plain; a better one would find more.
"""

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from benchmarks import report

import omkl
from omkl import noise, topology, wire
from omkl.data import load
from omkl.features import Features, transform
from omkl.learners.pooled import PooledMemory
from omkl.methods import Neighbors, Round
from omkl.methods.clipping import samples_by_round
from omkl.node import config as configs
from omkl.node.cluster import free_ports
from omkl.node.config import NetworkConfig
from omkl.node.events import Event, Gossiped, Scored
from omkl.node.node import Node
from omkl.node.protocol import Protocol
from omkl.node.settings import Member, Timing
from omkl.node.transports import memory
from omkl.node.transports.zenoh import Endpoints, ask
from omkl.quantizers import QSGD, restore
from omkl.reach import between_knots
from omkl.wire import Kind

Floats = npt.NDArray[Any]

NODES, SAMPLES, FRESH, MARKS = 12, 200, 400, 500
RIVALS = 99  # rows that a true one is picked out from
WINDOWS = (1, 2, 4, 8)  # samples of a node after which a listener takes stock
STAGES = {"sample 1": (0, 1), "samples 2-9": (1, 9), "samples 43-50": (42, 50), "samples 181-188": (180, 188)}
SEARCHED, TRIES, AROUND, NARROWER = 2, 30, 48, 0.87  # of the search for a row: samples, steps, rows tried, and closer
T95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
PAPER = omkl.paper()
METHODS: dict[str, omkl.Gossip] = {
    "default": omkl.recommended(),
    "default, random landmarks": omkl.recommended(basis=omkl.Landmarks(rank=120, rows=500, source="normal")),
    "default, 8 samples a message": omkl.recommended(pace=omkl.Pace(1 / 8, least=1 / 8)),
    "default, coarser messages": omkl.recommended(quantizer=omkl.Nearest(5.0)),
    "paper": PAPER,
    "paper, exact messages": PAPER.replace(quantizer=None),
}


class Rows(NamedTuple):
    """Disjoint rows of a data set: those of the streams ``(T, J, ...)``, fresh ones, and those that are shared."""

    X: Floats
    y: Floats
    fresh_X: Floats
    fresh_y: Floats
    shared: Floats
    others: Floats
    """As many rows as are shared, of the same kind; what a listener may have in place of those."""


def rows_of(data: str, seed: int, nodes: int, samples: int, fresh: int = FRESH) -> Rows:
    """Return rows of a data set in an order of the seed."""
    table = load(data)
    order = np.random.default_rng(seed).permutation(len(table.y))
    cuts = np.cumsum([nodes * samples, fresh, MARKS])
    stream, kept, shared, others = np.split(order[: cuts[-1] + MARKS], cuts)
    X, y = table.X[stream].reshape(samples, nodes, -1), table.y[stream].reshape(samples, nodes)
    return Rows(X, y, table.X[kept], table.y[kept], table.X[shared], table.X[others])


class Tapped(memory.Network):
    """A network in memory that keeps what is sent: when, by whom, to whom, and the bytes."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heard: list[tuple[float, str, str, bytes]] = []

    def _send(self, sender: str, receiver: str, data: bytes) -> None:
        self.heard.append((self.now, sender, receiver, data))
        super()._send(sender, receiver, data)


def config_of(method: omkl.Gossip, rows: Rows, seed: int, timing: Timing | None = None) -> NetworkConfig:
    """Return a ring."""
    nodes = rows.X.shape[1]
    members = tuple(Member(id=f"n{j}", listen=f"tcp/h:{j + 1}") for j in range(nodes))
    basis: Any = method.bank.basis
    shared = rows.shared if basis is not None and basis.source != "normal" else None
    ring = topology.build("ring", nodes)
    return NetworkConfig(
        name="n", inputs=rows.X.shape[-1], method=method, seed=seed, topology=ring, members=members, calibration=shared,
        timing=timing or Timing(),
    )  # fmt: skip


def run(config: NetworkConfig, rows: Rows, watch: memory.Watch | None = None) -> Tapped:
    """Return the network after all streams."""
    network = Tapped(watch=watch)
    for j, id in enumerate(config.ids):
        network.join(Protocol(config.role(id), j, 0.0))
    for j, id in enumerate(config.ids):
        network.feed(id, zip(rows.X[:, j], rows.y[:, j], strict=True))
    network.run(1e6)
    return network


class Heard(NamedTuple):
    """What a listener has decoded: of every round and node, ``(R, J, P, C, n)``."""

    before: Floats
    """The hidden state before the message, as far as it was heard."""
    hidden: Floats
    """The same after it."""
    own: Floats
    """What the node had when it sent the message: the hidden state, and the middle of what rounds to the message."""
    mixed: Floats
    """What mixing added since the round before."""
    lengths: Floats
    """Of the frames, ``(R, J)``."""


def decode(
    network: Tapped, config: NetworkConfig, start: int = 0, dither: bool = True, neighbors: int | None = None
) -> Heard:
    """Return what the frames tell whoever hears all messages after round ``start``.

    Heard from the first round on, they are verified by their own checks. A listener who comes later takes them
    unverified, and the hidden states for zero. Who hears only so many ``neighbors`` of a node besides it leaves out
    what the others do to it.
    """
    roles = [config.role(id) for id in config.ids]
    method = roles[0].method
    node = network.nodes[config.ids[0]]
    codec, shape = node.neighbors.codec, node.learning.shape
    found: list[list[tuple[Floats, Floats, Floats, int]]] = []
    for j, id in enumerate(config.ids):
        key = noise.fold(noise.key(config.seed, "quantizer"), j)
        copy, at, boot, own = np.zeros(shape, np.float32), 0, j, []
        for _, sender, _, data in network.heard:
            kind = wire.peek(data).kind
            if sender != id or kind not in wire.GOSSIP or wire.frames.nearest(data[1], at) != at + 1:
                continue
            at += 1
            if at <= start:
                continue
            if start:
                message = codec.unpack(kind == Kind.CODED, data[2:-2])
            else:
                message = wire.read_gossip(codec, data, (boot, at), wire.digest(copy))
            said = middle = restore(message)
            if isinstance(method.channel.quantizer, QSGD) and dither:
                drawn = noise.dither(noise.fold(key, np.asarray([at - 1], dtype=np.uint32)[:, None]), shape)[0]
                middle = (message.levels + np.sign(message.levels) * (0.5 - drawn)) * message.step
            own.append((copy, copy + said, copy + middle, len(data)))
            copy = copy + said
        found.append(own)
    rounds = min(map(len, found))
    before, hidden, own_, lengths = (
        np.stack([np.stack([one[part] for one in own[:rounds]]) for own in found], axis=1) for part in range(4)
    )
    ids, weights = config.topology.neighbors()
    weights = np.where(np.arange(weights.shape[1]) < (NODES if neighbors is None else neighbors), weights, 0)
    ring, velocity, mixed = Neighbors(ids, weights.astype(np.float32)), np.zeros_like(before[0]), []
    for state in before:
        velocity = ring.mix(method.mixing.momentum * velocity, state, method.mixing.step)
        mixed.append(velocity)
    return Heard(before, hidden, own_, np.stack(mixed), lengths)


@dataclass
class Listener:
    """What somebody makes of it: guesses at the models, and at the rows between two messages."""

    method: omkl.Gossip
    features: Features
    heard: Heard
    start: int = 0

    def __post_init__(self) -> None:
        schedule = self.method.schedule
        learned = [r if schedule is None else schedule.learned(r) for r in range(self.start + len(self.heard.own) + 1)]
        last = [np.searchsorted(learned, k + 1) for k in range(learned[-1])]
        self.rounds = np.array(last)  # after which each sample is learned
        self.first = int(np.searchsorted(self.rounds, self.start + 1))  # the first sample that is heard of

    @property
    def samples(self) -> int:
        """How many samples each node has taken, as the number of rounds tells."""
        return len(self.rounds)

    def z(self, X: Floats) -> Floats:
        """Return features."""
        return np.asarray(transform(X.astype(np.float32), self.features))

    def state(self, own: Floats, round_: int) -> Any:
        """Return the state of nodes ``(J, ...)`` that have ``own`` after a round, as everybody can work it out."""
        method = self.method
        state = method.init(np, own.shape[:-3], own.shape[-2], self.features.spectrum)
        state = state._replace(theta=own)
        memory = state.memory
        if isinstance(memory, PooledMemory):
            own_, count = (np.float32(between_knots(one, np.float32(round_))) for one in samples_by_round(method))
            state = state._replace(memory=memory._replace(own=own_, count=count))
        return method.unpack(own, state)

    def outputs(self, own: Floats, round_: int, X: Floats) -> Floats:
        """Return what nodes answer for rows, ``(J, N)``."""
        state = self.state(own[:, None], round_)
        z = self.z(X)
        z = np.broadcast_to(z, (len(own), *z.shape))
        inputs = Round(z, np.ones((*z.shape[:2], 1), np.float32), None)
        return np.asarray(self._observed(state, inputs, round_)[1])

    def _observed(self, state: Any, inputs: Round, round_: int) -> tuple[Floats, Floats]:
        """Return the models after learning, and the outputs before."""
        method = self.method
        if method.reach is not None:
            alpha = np.float32(method.reach.grown(np.asarray(round_, np.float32)))
            inputs = inputs._replace(reach=np.full(inputs.z.shape[:2], alpha, np.float32))
        shape = inputs.z.shape[:2]
        theta, weights = (np.broadcast_to(one, (*shape, *one.shape[2:])) for one in (state.theta, state.log_weights))
        kept = state.memory
        if isinstance(kept, PooledMemory):
            kept = PooledMemory(*(np.broadcast_to(part, (*shape, *np.shape(part)[2:])) for part in kept))
        learned, _, _, info = method.observe(theta, weights, kept, inputs)
        return np.asarray(learned - theta), np.asarray(info.output[..., 0])

    def scores(self, sample: int, window: int, z: Floats, nodes: Any = slice(None)) -> Floats:
        """Return how well each label of each row explains what nodes said after a sample, ``(J, N, 2)``.

        ``z (J, N, P, n)`` are the features of the rows. It is the logarithm of a likelihood ratio: of normal noise of
        the size of what was said, around the step that the node would have made for the row, and around none.
        """
        first = self.rounds[sample]
        last = self.rounds[min(sample + window, self.samples - 1)]
        if last == first:
            return np.zeros((*z.shape[:2], 2))
        heard, at = self.heard, first - 1 - self.start
        until = at + last - first
        own = heard.own[at][nodes]
        moved = heard.own[until][nodes] - own - heard.mixed[at + 1 : until + 1].sum(axis=0)[nodes]
        moved = moved[..., : self.method.bank.width]
        noise_ = np.mean(moved**2, axis=(-2, -1))[:, None, :] + 1e-30
        state, found = self.state(own[:, None], first), []
        for label in (-1.0, 1.0):
            y = np.full((*z.shape[:2], 1), label, np.float32)
            step, _ = self._observed(state, Round(z, y, None), first)
            fit = np.sum(step * (moved[:, None] - step / 2), axis=(-2, -1))
            found.append(np.sum(fit / noise_, axis=-1))
        return np.stack(found, axis=-1)


def auc(positive: Floats, negative: Floats) -> float:
    """Return the chance that one of the first scores higher than one of the second."""
    both = np.concatenate([np.ravel(positive), np.ravel(negative)])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse][: np.size(positive)]
    return float((ranks.sum() - len(ranks) * (len(ranks) + 1) / 2) / len(ranks) / np.size(negative))


def models(listener: Listener, network: Tapped, rows: Rows) -> report.Row:
    """Return how near a listener's models are to the nodes', and how well both predict fresh rows."""
    heard, right, nodes = listener.heard, rows.fresh_y > 0, list(network.nodes.values())
    width = listener.method.bank.width
    theirs = np.stack([np.asarray(node.learning.state.theta) for node in nodes])
    rounds = listener.start + len(heard.own)
    hidden = np.stack([np.asarray(node.learning.state.hidden) for node in nodes])
    same = listener.start == 0 and np.array_equal(hidden, heard.hidden[-1])
    apart = np.linalg.norm(heard.own[-1][..., :width] - theirs) / np.linalg.norm(theirs)
    told = listener.outputs(heard.own[-1], rounds, rows.fresh_X)
    own = np.stack([node.learning.predict(rows.fresh_X)[..., 0] for node in nodes])
    return {
        "hidden states": "to the bit" if same else "not known",
        "apart": float(apart),
        "node right": float(np.mean((own > 0) == right)),
        "listener right": float(np.mean((told > 0) == right)),
        "alike": float(np.mean((own > 0) == (told > 0))),
    }


def picked(listener: Listener, rows: Rows, first: int, last: int, seed: int) -> report.Row:
    """Return how well a listener tells the row that a node learned from fresh ones, at the moment when it did.

    ``seen`` is the chance that the true row scores higher than a fresh one; ``first of 100`` that it scores higher than
    99 of them; ``label`` how often the label of the true row is told right, and ``without`` from the model alone.
    """
    random, nodes = np.random.default_rng(seed), rows.X.shape[1]
    fresh = listener.z(rows.fresh_X)
    count = min(RIVALS, len(fresh))
    best: report.Row = {}
    for window in WINDOWS:
        told: list[Floats] = []
        for k in range(max(first, listener.first), min(last, listener.samples - 1)):
            chosen = random.permuted(np.tile(np.arange(len(fresh)), (nodes, 1)), axis=1)[:, :count]
            z = np.concatenate([listener.z(rows.X[k])[:, None], fresh[chosen]], axis=1)
            scores = listener.scores(k, window, z)
            most, odds = scores.max(axis=-1), scores[:, 0, 1] - scores[:, 0, 0]
            above = np.mean((most[:, :1] > most[:, 1:]) + 0.5 * (most[:, :1] == most[:, 1:]), axis=1)
            own = listener.heard.own[listener.rounds[k] - 1 - listener.start]
            output = np.diagonal(listener.outputs(own, listener.rounds[k], rows.X[k]))
            label, without = ((one >= 0) == (rows.y[k] > 0) for one in (odds + output, output))
            told.append(np.stack([above, above == 1, label, without]))
        names = ("seen", "first of 100", "label", "without")
        means = dict(zip(names, np.stack(told).mean(axis=(0, 2)).tolist(), strict=True))
        if not best or means["seen"] > best["seen"]:
            best = {**means, "window": float(window)}
    return best


def inverted(listener: Listener, rows: Rows, first: int, last: int, seed: int, window: int = 1) -> report.Row:
    """Return how much of a row a listener writes down who has never seen one, but for what columns usually hold.

    It begins with their means, tries rows around, and goes on from the best. ``known`` is the share of the variance of
    a row that is then explained, of the middle one of all rows: 0 for the means, 1 for the row itself.
    """
    random, found = np.random.default_rng(seed), []
    middle, spread = rows.fresh_X.mean(axis=0), rows.fresh_X.std(axis=0)
    low, high = rows.fresh_X.min(axis=0), rows.fresh_X.max(axis=0)
    for k in range(first, min(first + SEARCHED, last)):
        guess, width = np.tile(middle, (rows.X.shape[1], 1)), 1.0
        for _ in range(TRIES):
            near = guess[:, None] + width * spread * random.normal(size=(len(guess), AROUND, len(middle)))
            near = np.concatenate([guess[:, None], np.clip(near, low, high)], axis=1)
            scores = listener.scores(k, window, listener.z(near)).max(axis=-1)
            best = np.argsort(-scores, axis=1)[:, : AROUND // 8]
            guess = np.take_along_axis(near, best[..., None], axis=1).mean(axis=1)
            width *= NARROWER
        found.append(np.sum((guess - rows.X[k]) ** 2, axis=-1) / np.sum((middle - rows.X[k]) ** 2, axis=-1))
    return {"known": float(1 - np.median(found))}


def member(listener: Listener, network: Tapped, rows: Rows, nodes: int = 2) -> report.Row:
    """Return how well a listener tells rows of a node's stream from fresh ones, not knowing when they were learned.

    From all messages of the node, by the best score over the stream; and from its last model, by the loss.
    """
    chosen, best = np.arange(min(nodes, rows.X.shape[1])), 0.0
    samples = rows.X.shape[0]
    own = np.moveaxis(rows.X[:, chosen], 0, 1)
    y = np.concatenate([rows.y[:, chosen].T, np.tile(rows.fresh_y, (len(chosen), 1))], axis=1)
    z = np.concatenate([listener.z(own), np.tile(listener.z(rows.fresh_X), (len(chosen), 1, 1, 1))], axis=1)
    which = (y > 0).astype(int)[..., None]
    for window in (1, 4):
        scores = np.full(y.shape, -np.inf)
        for k in range(listener.first, listener.samples - 1):
            found = listener.scores(k, window, z, chosen)
            scores = np.maximum(scores, np.take_along_axis(found, which, axis=-1)[..., 0])
        best = max(best, float(np.mean([auc(one[:samples], one[samples:]) for one in scores])))
    losses = []
    for j in chosen:
        node = list(network.nodes.values())[j].learning
        margins = [
            y_ * node.predict(X)[..., 0] for X, y_ in ((rows.X[:, j], rows.y[:, j]), (rows.fresh_X, rows.fresh_y))
        ]
        losses.append(auc(*margins))
    return {"member": best, "by the model": float(np.mean(losses))}


def interval(values: Sequence[float]) -> str:
    """Return a mean and half of its 95 % interval over seeds."""
    half = T95[len(values)] * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {half:.3f}"


def over_seeds(found: Sequence[report.Row]) -> report.Row:
    """Return a row of means with intervals."""
    return {
        key: found[0][key] if isinstance(found[0][key], str) else interval([one[key] for one in found])
        for key in found[0]
    }


def attack(
    name: str, rows: Rows, seed: int, stages: dict[str, tuple[int, int]] = STAGES
) -> Iterator[tuple[str, report.Row]]:
    """Yield what a listener finds out about one run, by what it knows."""
    method = METHODS[name]
    config = config_of(method, rows, seed)
    network = run(config, rows)
    node = next(iter(network.nodes.values()))
    method, features, heard = node.role.method, node.learning.features, decode(network, config)
    listener = Listener(method, features, heard)
    assert listener.samples == len(rows.X), "the number of rounds tells the number of samples"
    yield "from the start", models(listener, network, rows)
    for stage, (first, last) in stages.items():
        told = picked(listener, rows, first, last, seed)
        if stage in (next(iter(stages)), list(stages)[-1]):
            told |= inverted(listener, rows, first, last, seed, round(float(told["window"])))
        yield stage, told
    yield "any time", member(listener, network, rows)
    late = decode(network, config, start=len(heard.own) // 2)
    halfway = Listener(method, features, late, start=len(heard.own) // 2)
    yield "from the middle", models(halfway, network, rows)
    (early, _), *_, (last_, (first, last)) = stages.items()
    yield f"{last_}, heard from the middle", picked(halfway, rows, first, last, seed)
    nearby = Listener(method, features, decode(network, config, neighbors=1))
    for stage in (early, last_):
        yield f"{stage}, by a neighbor", picked(nearby, rows, *stages[stage], seed)
    if isinstance(method.channel.quantizer, QSGD):
        plain = Listener(method, features, decode(network, config, dither=False))
        yield f"{last_}, seed not known", picked(plain, rows, first, last, seed)
    if config.calibration is not None:
        guessed = Listener(method, method.bank.draw(rows.X.shape[-1], seed, rows.others), heard)
        yield "with other rows for landmarks", models(guessed, network, rows)
        for stage in (early, last_):
            yield f"{stage}, other landmarks", picked(guessed, rows, *stages[stage], seed)


def attacks(data: str, *names: str, seeds: int = 3, nodes: int = NODES, samples: int = SAMPLES) -> Iterator[report.Row]:
    """Yield a row for each method and each thing that a listener tries."""
    for name in names or METHODS:
        runs = [dict(attack(name, rows_of(data, seed, nodes, samples), seed)) for seed in range(seeds)]
        for what in runs[0]:
            yield {"method": name, "heard": what, **over_seeds([one[what] for one in runs])}


def times(observations: int = 100, seeds: int = 3, patience: float = 0.2) -> Iterator[report.Row]:
    """Yield how often the first who speaks after an observation is the node that took it, and what lengths tell.

    Observations come one every few seconds at random nodes. ``surprise`` is the chance that a frame after a sample
    of a large loss, one of a tenth, is longer than one after another sample.
    """
    rows, method = rows_of("banana", 0, NODES, observations), METHODS["default"]
    for mode in ("lockstep", "timer"):
        timing = Timing(mode=mode, patience=patience, period=1.0)
        kept = method if mode == "lockstep" else method.replace(pace=None)
        config = config_of(kept, rows, 0, timing)
        network = Tapped(memory.Conditions(delay=0.005, jitter=0.01))
        for j, id in enumerate(config.ids):
            network.join(Protocol(config.role(id), j, 0.0))
        random = np.random.default_rng(0)
        when = 20 + np.cumsum(random.uniform(5, 15, observations))
        who = random.integers(NODES, size=observations)
        for k in range(observations):
            network.at(when[k], partial(network.observe, config.ids[who[k]], rows.X[k, 0], rows.y[k, 0]))
        network.run(float(when[-1] + 20))
        gossip = [(at, sender) for at, sender, _, data in network.heard if wire.peek(data).kind in wire.GOSSIP]
        at = np.array([one for one, _ in gossip])
        first = [gossip[place][1] for place in np.searchsorted(at, when)]
        right = np.mean([id == config.ids[j] for id, j in zip(first, who, strict=True)])
        yield {"mode": mode, "first to speak": float(right), "by chance": 1 / NODES}
    losses: list[float] = []
    lengths: list[float] = []
    for seed in range(seeds):
        rows = rows_of("banana", seed, NODES, SAMPLES)
        config, seen = config_of(method, rows, seed), dict[str, list[float]]()
        network = run(config, rows, partial(_note, seen))
        listener = Listener(
            network.nodes["n0"].role.method, network.nodes["n0"].learning.features, decode(network, config)
        )
        for j, id in enumerate(config.ids):
            for k in range(SAMPLES // 2, SAMPLES - 1):
                losses.append(seen[id][k])
                lengths.append(listener.heard.lengths[listener.rounds[k], j])
    large = np.array(losses) >= np.quantile(losses, 0.9)
    told = auc(np.array(lengths)[large], np.array(lengths)[~large])
    yield {"lengths of frames": f"{min(lengths):.0f} to {max(lengths):.0f} bytes", "surprise": told}


def _note(seen: dict[str, list[float]], now: float, id: str, event: Event) -> None:
    if isinstance(event, Scored) and event.loss is not None:
        seen.setdefault(id, []).append(event.loss)


class Relay:
    """Passes bytes on between two ports of this machine, and keeps them."""

    def __init__(self, port: int, to: int) -> None:
        self.heard: dict[str, bytes] = {"a": b"", "b": b""}
        self._to = to
        self.server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.server.accept()
                with suppress(OSError):
                    far = socket.create_connection(("127.0.0.1", self._to))
                    for ways in (("b", near, far), ("a", far, near)):
                        threading.Thread(target=self._carry, args=ways, daemon=True).start()

    def _carry(self, name: str, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.heard[name] += data
                target.sendall(data)


def links(samples: int = 60) -> Iterator[report.Row]:
    """Yield what a relay between two real nodes hears, and what a stranger gets who connects to one."""
    for secret in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            yield relayed(Path(folder), secret, samples)


def relayed(folder: Path, secret: bool, samples: int) -> report.Row:
    def omkl_(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "omkl.cli", "node", *words], cwd=folder, check=True, capture_output=True)

    near, far, between = free_ports(3)
    omkl_("init", "--nodes", "2", "--topology", "path", "--metrics", "none", *["--tls"][: int(secret)])
    if secret:
        omkl_("certificates")
    text = (folder / "network.toml").read_text().replace(":7447", f":{near}").replace(":7448", f":{far}")
    for id, port in (("a", near), ("b", between)):
        (folder / f"{id}.toml").write_text(text.replace(f":{near}", f":{port}"))
    frames: dict[str, list[bytes]] = {"a": [], "b": []}
    nodes: dict[str, Node] = {}

    def note(id: str, event: Event) -> None:
        if isinstance(event, Gossiped):
            frames[id].append(bytes(nodes[id].protocol.neighbors.recent[-1]))

    random = np.random.default_rng(0)
    nodes["a"] = Node(configs.load(folder / "a.toml"), "a", watch=[lambda event: note("a", event)])
    nodes["b"] = Node(configs.load(folder / "b.toml"), "b", watch=[lambda event: note("b", event)])
    nodes["a"].start()
    relay = Relay(between, near)
    nodes["b"].start()
    for _ in range(samples):
        x = random.normal(size=(2, 2))
        for node, one in zip(nodes.values(), x, strict=True):
            node.observe(one, 1 if one[0] > 0 else -1)
        time.sleep(0.02)
    for node in nodes.values():
        node.end()
        node.wait(10)
    strange = Endpoints(connect=[f"{'tls' if secret else 'tcp'}/127.0.0.1:{near}"])
    model = _asked("a", "model", b"", strange)
    boot = nodes["b"].protocol.neighbors.boot
    hidden = _asked("a", "ask/b", wire.write_ask(boot, nodes["b"].protocol.round, (1, 1)), strange)
    for node in reversed(nodes.values()):
        node.close()
    relay.server.close()
    heard, said = relay.heard["a"], frames["a"]
    lengths = np.array([len(one) for one in said])
    found = records(heard) if secret else []
    over = Counter(found).most_common(1)[0][0] - Counter(lengths.tolist()).most_common(1)[0][0] if secret else 0
    return {
        "link": "tls" if secret else "tcp",
        "frames": len(said),
        "read": sum(one in heard for one in said),
        "greeting read": str(b"network sensors" in heard),
        "lengths told": in_order((lengths + over).tolist(), found) if secret else len(said),
        "stranger gets the model": str(model is not None),
        "and the hidden state": str(hidden is not None),
    }


def _asked(id: str, what: str, payload: bytes, where: Endpoints) -> bytes | None:
    with suppress(omkl.InputError):
        return ask("sensors", id, what, payload, where, 3.0)
    return None


def records(heard: bytes) -> list[int]:
    """Return the lengths of encrypted records of TLS, which are sent in clear."""
    found, at = [], 0
    while at + 5 <= len(heard):
        size = int.from_bytes(heard[at + 3 : at + 5], "big")
        if heard[at] == 23:
            found.append(size)
        at += 5 + size
    return found


def in_order(wanted: Sequence[int], found: Sequence[int]) -> int:
    """Return how many of the wanted come in their order among what was found."""
    blocks = SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def shared(seeds: int = 5, sets: Sequence[str] = ("banana", "credit_card")) -> Iterator[report.Row]:
    """Yield how well landmarks tell rows that went into them from others, by the distance to the nearest landmark."""
    for data in sets:
        for source in ("rows", "centers", "normal"):
            told = []
            for seed in range(seeds):
                rows = rows_of(data, seed, 1, 2000)
                into = rows.X[:, 0] if source == "centers" else rows.shared
                basis = omkl.Landmarks(rank=120, rows=500, source=source)
                made = omkl.recommended(basis=basis).bank.draw(into.shape[1], seed, into)
                marks = np.asarray(made.landmarks)

                told.append(auc(_near(into[:500], marks), _near(rows.fresh_X, marks)))
            yield {"data": data, "landmarks": source, "told from fresh rows": interval(told)}


def _near(X: Floats, marks: Floats) -> Floats:
    """Return minus the distance to the nearest landmark."""
    return np.asarray(-np.linalg.norm(X[:, None] - marks, axis=-1).min(axis=1))


def main(what: str, *rest: str) -> None:
    """Print one part."""
    kinds: dict[str, Callable[..., Iterator[report.Row]]] = {
        "rows": attacks, "times": times, "links": links, "shared": shared
    }  # fmt: skip
    found = []
    for row in kinds[what](*rest):
        found.append(row)
        print(row, file=sys.stderr)
    report.finish("eavesdrop", found, f"{what} {' '.join(rest)}".strip())


if __name__ == "__main__":
    main(*sys.argv[1:])
