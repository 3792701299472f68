"""What kill -9 of every node in turn, twice, costs a network that learns Banana.

Twenty ``omkl node`` daemons, each fed its part of the data line by line; see ``benchmarks.fleet``. Kills are spread
evenly over the run. The same is run without them, and the losses compared: scored before each sample is learned, over
all samples, and over the last quarter of every node's. Observations that were acknowledged and are in no checkpoint
are counted twice: here, by the rounds that daemons go on from, and by themselves, as they tell it. One more may be told
for each kill: taken, and not yet acknowledged.

Run from the repository's root: python -m benchmarks.kills
"""

import argparse
import string
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import report
from benchmarks.fleet import Fleet, Sample, write_network

from omkl.data import as_stream


def parts(nodes: int, rounds: int | None) -> list[list[Sample]]:
    X, y = as_stream("banana", nodes)[0]
    pairs = [zip(X[:rounds, j], y[:rounds, j], strict=True) for j in range(nodes)]
    return [[(x.tolist(), int(label)) for x, label in part] for part in pairs]


def run(network: Path, samples: list[list[Sample]], kills: int) -> dict[str, Any]:
    """Return what a run has to show in which every node is killed so many times."""
    began, total = time.monotonic(), sum(map(len, samples))
    with Fleet(network) as fleet:
        fleet.feed(samples)
        victims = list(fleet.daemons.values()) * kills
        for k, daemon in enumerate(victims):
            due = total * (k + 1) // (len(victims) + 1)
            fleet.wait(lambda due=due: fleet.acknowledged >= due)  # type: ignore[misc]
            daemon.kill()
            daemon.start()
        fleet.drain()
        took, settled = time.monotonic() - began, fleet.settle()
        fleet.leave()
        return {"kills": len(victims)} | measure(fleet, samples) | {"rounds to settle": settled, "seconds": took}


def measure(fleet: Fleet, samples: list[list[Sample]]) -> dict[str, Any]:
    daemons = list(fleet.daemons.values())
    losses: Any = [[ack.loss for ack in one.acks[: len(part)]] for one, part in zip(daemons, samples, strict=True)]
    tails = [part[-(len(part) // 4) :] for part in losses]
    copies, equal = fleet.copies()
    states = [event.get("after") for one in daemons for event in one.events("link")]
    return {
        "loss": float(np.mean(np.concatenate(losses))),
        "last quarter": float(np.mean(np.concatenate(tails))),
        "acknowledged": sum(map(len, losses)),
        "lost": fleet.lost(),
        "told": sum(event["observations"] for one in daemons for event in one.events("lost")),
        "copies": copies,
        "equal": equal,
        "snapshots": sum(len(one.events("resync")) for one in daemons),
        "left out": states.count("left out"),
        "rounds": max(one.acks[-1].round for one in daemons),
    }


def compared(
    nodes: int, rounds: int | None, kills: Sequence[int], topology: str = "path", every: int | str = "observation",
    deadline: float = 5.0,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield what runs have to show in which every node is killed so many times."""
    samples = parts(nodes, rounds)
    for count in kills:
        with tempfile.TemporaryDirectory() as folder:
            network = write_network(
                Path(folder), string.ascii_letters[:nodes], topology=topology, deadline=deadline, patience=0.2,
                every=every,
            )  # fmt: skip
            yield run(network, samples, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--rounds", type=int, help="samples of every node; all that there are by default")
    parser.add_argument("--kills", type=int, default=2, help="of every node")
    parser.add_argument("--topology", default="path")
    parser.add_argument("--every", default="observation", help="checkpoints: a number of rounds, or observation")
    parser.add_argument("--deadline", type=float, default=5.0)
    args = parser.parse_args()
    every = int(args.every) if args.every.isdigit() else args.every
    rows = list(compared(args.nodes, args.rounds, (0, args.kills), args.topology, every, args.deadline))
    ratios = {name: rows[1][name] / rows[0][name] - 1 for name in ("loss", "last quarter")}
    note = ", ".join(f"{name} {100 * ratio:+.2f} %" for name, ratio in ratios.items())
    report.finish("kills", rows, f"With kills: {note}.")


if __name__ == "__main__":
    main()
