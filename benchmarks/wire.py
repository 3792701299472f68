"""What a gossip frame weighs, part by part, over the paper's run, and how long it takes to pack and unpack.

Steps and levels share one number: the steps are charged what their symbols cost, the levels the rest, rounding to whole
bytes included. Times are the best of nine turns.

Run from the repository's root: python -m benchmarks.wire
"""

import timeit
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from benchmarks import report

import omkl
from omkl import algorithm, data, features, noise, wire
from omkl.methods import Neighbors, Round
from omkl.quantizers import Message
from omkl.topology import build
from omkl.wire import sizes

NODES, ROUNDS = 20, 265
HEADER = {"kind": 1, "round": 1, "check": 2}


class Sent(NamedTuple):
    """A round of a network: the nodes' hidden states before it, and their messages."""

    hidden: np.ndarray
    message: Message


def sent(method: omkl.Gossip, rounds: int = ROUNDS) -> Iterator[Sent]:
    """Yield what the nodes of a path send, round by round, on Banana."""
    stream, _ = data.as_stream("banana", NODES)
    index, weights = build("path", NODES).neighbors()
    network = Neighbors(index, weights.astype(np.float32))
    V = features.draw(method.bank.kernels, method.bank.features, stream.X.shape[-1], 0)
    key = noise.fold(noise.key(0, "quantizer"), np.arange(NODES)[:, None])
    state: Any = method.init(np, (NODES,), 1)
    for t, (X, y) in enumerate(zip(stream.X[:rounds], method.objective.encode(stream.y[:rounds]), strict=True)):
        uniforms = noise.dither(noise.fold(key, t), state.theta.shape[1:]) if method.dithered else None
        theta = network.mix(state.theta, state.hidden, method.mixing.step)
        yield Sent(state.hidden, algorithm.emit(theta, state.hidden, method.channel.quantizer, uniforms))
        state, _ = method.step(state, Round(features.transform(X, features.Features(V)), y, uniforms), network)


def weigh(method: omkl.Gossip, rounds: int = ROUNDS) -> report.Row:
    codec = wire.Codec((len(method.bank.kernels), 1, 2 * method.bank.features), method.channel.quantizer)
    frames, steps = [], []
    for hidden, (levels, step) in sent(method, rounds):
        table = sizes.costs(method.channel.quantizer, codec.shape[2])  # type: ignore[arg-type]
        bits = sizes.block_bits(np, step.reshape(NODES, 1, -1), step[0].size, table).sum(axis=-1)
        steps.append(np.clip(bits - table.start, 0, None).mean() / 8)
        for node in range(NODES):
            seed = wire.digest(hidden[node])
            frames.append(len(wire.write_gossip(codec, 1, 2, Message(levels[node], step[node]), seed)))
    parts = {"steps": float(np.mean(steps)), "levels": np.mean(frames) - np.mean(steps) - wire.HEADER_BYTES}
    name = {"quantizer": str(method.channel.quantizer), "eta": method.eta}
    return {**name, **HEADER, **parts, "all-in": float(np.mean(frames)), "most": max(frames)}


def clock(method: omkl.Gossip, number: int = 1000, repeat: int = 9) -> report.Row:
    *_, (hidden, (levels, step)) = sent(method, rounds=20)
    codec, message = wire.Codec(levels.shape[1:], method.channel.quantizer), Message(levels[0], step[0])
    coded, body = codec.pack(message)
    seed = wire.digest(hidden[0])
    frame = wire.write_gossip(codec, 1, 2, message, seed)
    work: dict[str, Callable[[], Any]] = {
        "pack": lambda: codec.pack(message),
        "unpack": lambda: codec.unpack(coded, body),
        "digest": lambda: wire.digest(hidden[0]),
        "write": lambda: wire.write_gossip(codec, 1, 2, message, seed),
        "read": lambda: wire.read_gossip(codec, frame, (1, 2), seed),
    }
    times = {
        f"{name} us": 1e6 * min(timeit.repeat(call, number=number, repeat=repeat)) / number
        for name, call in work.items()
    }
    return {"frame": str(method.channel.quantizer), "bytes": len(frame), **times}


def main() -> None:
    coded = (omkl.QSGD(bits=3), omkl.Nearest(step=2.5))
    rates = ((0.01, 0.009), (1, 0.5))
    rows = [weigh(omkl.Gossip(eta=eta, gamma=gamma, quantizer=q)) for q in coded for eta, gamma in rates]
    each = (*coded, omkl.Sign(), omkl.Exact())
    times = [clock(omkl.Gossip(eta=1, gamma=0.5, quantizer=quantizer)) for quantizer in each]
    report.finish("wire", rows + times, f"Bytes over {ROUNDS} rounds of Banana, {NODES} nodes on a path; times in us.")


if __name__ == "__main__":
    main()
