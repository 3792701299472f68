"""What one node that lies does to the others, and what clipping costs where nobody lies.

python -m benchmarks.poison lies        Banana, 20 protocol objects in memory, one of which sends valid frames of lies
python -m benchmarks.poison lies mnist  the same on another data set, for one setting and the two plainest lies
python -m benchmarks.poison cost        Banana, Credit-Card and MNIST in the simulator, all nodes honest
python -m benchmarks.poison labels      the same for nodes that see one label each, where honest nodes must differ
"""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from benchmarks import report

import omkl
from omkl import algorithm, calibration, topology, wire
from omkl.data import as_stream, first_rounds
from omkl.node.config import NetworkConfig
from omkl.node.events import Diverged, Event, Scored
from omkl.node.neighbors import Send
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.settings import Member
from omkl.node.transports.memory import Network, Watch
from omkl.quantizers import LARGEST_STEP, Message
from omkl.wire import Kind

NODES = 20
CLIP = 0.3  # of settings with a rate eta
POOLED_CLIP = 0.1  # of the default: its coordinates are whitened, and a move of any of them is a move of the output
SEEDS = 5
FEW_SEEDS = 3  # protocol objects take a second or more for each run of Banana
T95 = 2.776  # Student's, of five runs
SETTINGS = {
    "recommended": omkl.recommended(),
    "eta=1, gamma=.5, nearest": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=omkl.Nearest(2.5)),
    "eta=1, gamma=.5, exact": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=None),
    "paper's, QSGD": omkl.Gossip(),
}

Lie = Callable[[Message, int], Message]


def clip_of(setting: str) -> float:
    """Return the radius that is recommended for a setting."""
    return POOLED_CLIP if setting == "recommended" else CLIP


def huge(honest: Message, at: int) -> Message:
    """Return numbers of 1e30, or the largest step there is on the wire, 1.2e18."""
    if honest.levels.dtype.kind == "f":
        return honest._replace(levels=np.full_like(honest.levels, 1e30))
    silent = (honest.step == 0).repeat(honest.levels.shape[-1] // honest.step.shape[-1], axis=-1)
    return Message(np.where(silent, 1, honest.levels), np.full_like(honest.step, LARGEST_STEP))


def flipped(honest: Message, at: int) -> Message:
    """Return the honest message with its sign turned."""
    return honest._replace(levels=-honest.levels)


def louder(honest: Message, at: int) -> Message:
    """Return it a million times as large besides."""
    if honest.levels.dtype.kind == "f":
        return honest._replace(levels=np.float32(-1e6) * honest.levels)
    return Message(-honest.levels, np.minimum(honest.step * np.float32(2**20), np.float32(LARGEST_STEP)))


def noisy(honest: Message, at: int) -> Message:
    """Return the largest numbers with signs at random."""
    signs = np.random.default_rng(at).choice([-1, 1], honest.levels.shape).astype(honest.levels.dtype)
    large = huge(honest, at)
    return large._replace(levels=signs * np.abs(large.levels))


def mixed(honest: Message, at: int) -> Message:
    """Return one of the others, by turns of ten rounds."""
    return (flipped, huge, louder, noisy)[at // 10 % 4](honest, at)


LIES: dict[str, Lie | None] = {
    "nobody": None, "huge": huge, "flipped": flipped, "louder": louder, "noisy": noisy, "mixed": mixed
}  # fmt: skip


class Liar(Protocol):
    """A node that computes as others do and says something else, always in frames that are valid for its neighbors."""

    def __init__(self, role: Role, boot: int, now: float, lie: Lie) -> None:
        super().__init__(role, boot, now)
        self.lie = lie
        self.shown = np.zeros_like(self.learning.state.hidden)
        """The hidden state that its neighbors hold."""

    def _gossip(self, now: float) -> None:
        seed, neighbors = wire.digest(self.learning.state.hidden), self.neighbors
        super()._gossip(now)
        honest = wire.read_gossip(neighbors.codec, neighbors.recent[-1], (neighbors.boot, self.round), seed)
        message = self.lie(honest, self.round)
        seed, self.shown = wire.digest(self.shown), np.asarray(algorithm.absorb(self.shown, message))
        frame = wire.write_gossip(neighbors.codec, neighbors.boot, self.round, message, seed)
        neighbors.recent[-1], neighbors.sends[-1] = frame, Send(None, frame)

    def outgoing(self) -> list[Send]:
        """Return what is to be sent, snapshots of the lies among it."""
        return [Send(peer, self._snapshot(data)) for peer, data in super().outgoing()]

    def _snapshot(self, data: bytes) -> bytes:
        kind, boot, at = wire.peek(data)
        return wire.write_snapshot(boot, at, self.shown) if kind == Kind.SNAPSHOT else data


def play(
    config: NetworkConfig, X: Any, y: Any, lie: Lie | None, liar: int, watch: Watch, until: float = 1000.0
) -> Network:
    """Return a network in memory when nothing more happens, or then; node number ``liar`` tells the lie, if any."""
    network = Network(watch=watch)
    for j, id in enumerate(config.ids):
        role = config.role(id)
        network.join(Liar(role, j, 0.0, lie) if lie and j == liar else Protocol(role, j, 0.0))
    for j, id in enumerate(config.ids):
        network.feed(id, zip(X[:, j], y[:, j], strict=True))
    network.run(until)
    return network


def honest_losses(
    method: omkl.Gossip, graph: str, X: Any, y: Any, lie: Lie | None, seed: int, liar: int
) -> tuple[Any, int]:
    """Return the losses of all nodes but the liar, in the order they came, and how many of these nodes had to halt."""
    members = tuple(Member(id=f"n{j}", listen=f"tcp/h:{j + 1}") for j in range(X.shape[1]))
    built = topology.build(graph, len(members))
    shared = X.reshape(-1, X.shape[-1]) if calibration.rows(method.bank.basis, method.bank.sigma) else None
    config = NetworkConfig(
        name="n", inputs=X.shape[-1], method=method, seed=seed, topology=built, members=members, calibration=shared
    )
    losses, halted = [], set()

    def watch(now: float, id: str, event: Event) -> None:
        if id == f"n{liar}":
            return
        if isinstance(event, Scored):
            losses.append(event.loss)
        elif isinstance(event, Diverged):
            halted.add(id)

    play(config, X, y, lie, liar, watch)
    return np.array(losses), len(halted)


def lies(data: str = "banana") -> None:
    """Print how much the mean loss of the honest rises over that of an honest network without clipping."""
    few = data != "banana"  # which is quick
    rows: list[report.Row] = []
    for setting in list(SETTINGS)[: 1 if few else None]:
        for graph in ("path",) if few else ("path", "ring"):
            for row in lied(data, setting, graph, list(LIES)[: 3 if few else None], FEW_SEEDS):
                rows.append(row)
                print(row, file=sys.stderr)
    report.finish(
        "poison", rows, f"One liar of {NODES}, node {NODES // 2}; {FEW_SEEDS} seeds, each with its order of {data}."
    )


def lied(
    data: str, setting: str, graph: str, names: Sequence[str], seeds: int, nodes: int = NODES, rounds: int | None = None
) -> Iterator[report.Row]:
    """Yield a row for every lie, the first of which is none at all."""
    clean: dict[int, float] = {}
    for name in names:
        row: report.Row = {"setting": setting, "graph": graph, "liar": name}
        for told, clip in (("no clip", None), ("clip", clip_of(setting))):
            method, rise, halts = SETTINGS[setting].replace(clip=clip), [], 0
            for seed in range(seeds):
                X, y = first_rounds(as_stream(data, nodes, seed)[0], rounds)
                losses, halted = honest_losses(method, graph, X, y, LIES[name], seed, nodes // 2)
                loss = float(losses.mean())
                rise.append(100 * (loss / clean.setdefault(seed, loss) - 1))
                halts += halted
            row[f"{told}, %"] = f"{np.mean(rise):.3g}"
            row[f"{told}, worst seed"] = f"{np.max(rise):.3g}"
            row[f"{told}, halted"] = halts
        yield row


def cost() -> None:
    """Print what clipping costs an honest network, in percent of the mean loss over the stream, with 95 % intervals."""
    rows: list[report.Row] = []
    for data, setting, graph in itertools.product(("banana", "credit_card", "mnist"), SETTINGS, ("path", "ring")):
        rows.append(cost_of(data, setting, graph))
        print(rows[-1], file=sys.stderr)
    report.finish(
        "poison",
        rows,
        f"clip={CLIP}, {POOLED_CLIP} of the default, against none; {SEEDS} seeds, each with its order of the samples.",
    )


def cost_of(data: str, setting: str, graph: str, rounds: int | None = None) -> report.Row:
    method, parts = SETTINGS[setting], []
    cases = {"off": (method, graph), "on": (method.replace(clip=clip_of(setting)), graph)}
    for shuffle in range(SEEDS):
        results = omkl.compare(data, cases, NODES, seeds=1, seed=shuffle, shuffle=shuffle, rounds=rounds)
        off, on = (float(results[case].loss.mean()) for case in ("off", "on"))
        parts.append(100 * (on / off - 1))
    mean, spread = np.mean(parts), T95 * np.std(parts, ddof=1) / np.sqrt(SEEDS)
    row: report.Row = {"data": data, "setting": setting, "graph": graph, "loss": off}
    return row | {"cost, %": f"{mean:.3f}", "+-": f"{spread:.3f}", "worst": f"{max(parts):.3f}"}


def labels(
    graphs: Sequence[str] = ("path", "complete"),
    clips: Sequence[float | None] = (None, CLIP, 1.0, 2.0, 4.0),
    seeds: int = SEEDS,
) -> None:
    """Print the pooled loss of the last fifth where half of the nodes see one label, half the other."""
    samples = as_stream("banana", NODES, 0)[0]
    order = np.argsort(samples.y, axis=None, kind="stable")
    order = np.random.default_rng(0).permuted(order.reshape(NODES, -1), axis=1).T
    X, y = samples.X.reshape(-1, 2)[order], samples.y.reshape(-1)[order]
    rows: list[report.Row] = []
    for graph, clip in itertools.product(graphs, clips):
        method = SETTINGS["eta=1, gamma=.5, nearest"].replace(clip=clip)
        result = omkl.simulate((X, y), graph, method=method, seeds=seeds, pooled=True)
        assert result.pooled_loss is not None
        last = result.pooled_loss[:, -len(X) // 5 :]
        rows.append({"graph": graph, "clip": str(clip), "pooled loss": float(last.mean())})
    report.finish("poison", rows, "Banana sorted by label; every node's model on all nodes' samples.")


if __name__ == "__main__":
    {"lies": lies, "cost": cost, "labels": labels}[sys.argv[1]](*sys.argv[2:])
