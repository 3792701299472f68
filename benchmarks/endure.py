"""What half an hour of kill -9 leaves of a network that is fed in both ways, and what its processes hold meanwhile.

Twenty ``omkl node`` daemons run the default method with ``every = "observation"``. Every other one is fed over zenoh,
the rest by standard input; see ``benchmarks.fleet``. An answer, and a prediction that is written, are acknowledgements,
and are counted here. All nodes are killed again and again in an order drawn by lot, each once it has acknowledged
something since it began, and the last tenth of the time passes without. What a node was seen to acknowledge must be in
what it goes on from: by its rounds, and by its number. Memory, descriptors, threads and the size of the logs are looked
at all the time, and told by quarters of it.

Run from the repository's root: python -m benchmarks.endure
"""

import argparse
import json
import random
import string
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from benchmarks import report
from benchmarks.fleet import PATIENCE, POLL, Ack, Daemon, Fleet, Sample, write_network
from benchmarks.kills import parts
from benchmarks.soak import entries, resident

from omkl.node import client, config
from omkl.node.transports.zenoh import Guest

START = 600.0  # seconds that all may take to begin, which compile their rounds at once
ANSWER = 20.0  # seconds that an answer over zenoh may take
QUIET = 0.1  # of the time is left to itself at the end
QUARTERS = 4
DEFAULT = """\
[learning.method]
name = "recommended"
basis = {source = "normal"}
"""


class Asked(Daemon):
    """A daemon that is fed over zenoh, one query for each sample; its standard input only tells it when to leave."""

    def __init__(self, network: Path, id: str, prefix: Sequence[str] = (), *, compiled: bool, guest: Guest) -> None:
        super().__init__(network, id, prefix, compiled=compiled)
        self._guest, self._asks, self._over = guest, threading.Lock(), threading.Event()
        self._asker = threading.Thread(target=self._work, daemon=True)
        self._asker.start()

    def close(self) -> None:
        """Ask no more."""
        self._over.set()
        self._asker.join(PATIENCE)

    def _give(self) -> None:
        """Do nothing: whoever asks looks for samples by itself."""

    def _work(self) -> None:
        while not self._over.wait(POLL):
            with self._asks:  # a life ends when its last answer has come, or will not
                while self.process is not None and not self.is_idle and self._ask():
                    pass

    def _ask(self) -> bool:
        x, y = self.samples[len(self.acks)]
        question = json.dumps({"x": list(x)} | ({} if y is None else {"y": y})).encode()
        answers = self._guest.ask([self.id], "observe", question)
        for answer in map(json.loads, answers.values()):
            self.acks.append(Ack(answer["round"] if answer["saved"] else -1, None))
        return bool(answers)

    def _end(self) -> int:
        code = super()._end()
        with self._asks:
            return code


class Look(NamedTuple):
    """What a process holds, and what its log has grown to."""

    at: float
    """Of the time of the run."""
    id: str
    rss: int
    descriptors: int
    threads: int
    log: int


def look(fleet: Fleet, at: float) -> Iterator[Look]:
    """Yield what each process holds that is there."""
    for id, one in fleet.daemons.items():
        try:
            if one.process is not None:
                pid = one.process.pid
                descriptors, threads = (entries(f"/proc/{pid}/{what}") for what in ("fd", "task"))
                yield Look(min(at, 1 - 1e-9), id, resident(pid), descriptors, threads, one.log.stat().st_size)
        except (OSError, StopIteration):  # it has just ended
            continue


def disturb(fleet: Fleet, samples: Sequence[Sequence[Sample]], seconds: float, rate: float, kills: int) -> list[Look]:
    """Feed and kill all for so long, each so many times, and return what was seen meanwhile."""
    looks, given, choose = list[Look](), 0, random.Random(0)
    victims = [one for _ in range(kills) for one in choose.sample(list(fleet.daemons.values()), len(fleet.daemons))]
    streams, total = [cycle(part) for part in samples], len(victims)
    fleet.feed([[next(stream)] for stream in streams])
    fleet.wait(lambda: all(one.acks for one in fleet.daemons.values()), START)
    began, before = time.monotonic(), dict.fromkeys(fleet.daemons, 0)
    while (passed := time.monotonic() - began) < seconds or (victims and passed < 2 * seconds):
        while given <= passed * rate:
            fleet.feed([[next(stream)] for stream in streams])
            given += 1
        if len(looks) < passed * len(fleet.daemons):
            looks += look(fleet, passed / seconds)
        is_due = victims and passed >= (1 - QUIET) * seconds * (total - len(victims) + 1) / (total + 1)
        if is_due and len(victims[-1].acks) > before[victims[-1].id]:  # else its last life has yet to begin
            one = victims.pop()
            one.kill()
            before[one.id] = len(one.acks)
            one.start()
        time.sleep(POLL)
    return looks


def quarters(looks: Sequence[Look]) -> Iterator[report.Row]:
    """Yield what was held in each quarter of the time."""
    for k in range(QUARTERS):
        part = [one for one in looks if k <= QUARTERS * one.at < k + 1]
        logs = {id: [one.log for one in part if one.id == id] for id in {one.id for one in part}}
        yield {
            "quarter": k + 1,
            "RSS MiB": sum(one.rss for one in part) / len(part) / 2**20,
            "at most": max(one.rss for one in part) / 2**20,
            "descriptors": max(one.descriptors for one in part),
            "threads": max(one.threads for one in part),
            "kB of log": sum(sizes[-1] - sizes[0] for sizes in logs.values()) / 1000,
        }


def endured(
    nodes: int, seconds: float, rate: float, kills: int, deadline: float = 5.0, compiled: bool = True
) -> tuple[report.Row, list[report.Row]]:
    """Return what came of a network, and what its processes held."""
    ids = string.ascii_letters[:nodes]
    with tempfile.TemporaryDirectory() as folder:
        network = write_network(
            Path(folder), ids, topology="ring" if nodes > 2 else "path", deadline=deadline, every="observation",
            method=DEFAULT,
        )  # fmt: skip
        guest = client.guest(config.load(network), ANSWER)
        asked = dict.fromkeys(ids[::2], partial(Asked, guest=guest))
        try:
            with Fleet(network, compiled=compiled, kinds=asked) as fleet:
                looks = disturb(fleet, parts(nodes, None), seconds, rate, kills)
                settled = fleet.settle()
                fleet.leave()
                return summary(fleet) | {"rounds to settle": settled}, list(quarters(looks))
        finally:
            guest.close()


def summary(fleet: Fleet) -> report.Row:
    daemons = list(fleet.daemons.values())
    lives = [len(one.events("started")) for one in daemons]
    over_zenoh = [one for one in daemons if isinstance(one, Asked)]
    copies, equal = fleet.copies()
    return {
        "kills": sum(lives) - len(lives),
        "of each, at least": min(lives) - 1,
        "over zenoh": sum(len(one.acks) for one in over_zenoh),
        "in all": fleet.acknowledged,
        "lost, by rounds": fleet.lost(),
        "by number": max(one.short() for one in daemons),
        "told": sum(event["observations"] for one in daemons for event in one.events("lost")),
        "copies": copies,
        "equal": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--rate", type=float, default=2.0, help="samples of a node in a second")
    parser.add_argument("--kills", type=int, default=6, help="of every node")
    parser.add_argument("--deadline", type=float, default=5.0)
    args = parser.parse_args()
    row, held = endured(args.nodes, args.seconds, args.rate, args.kills, args.deadline)
    note = f"{args.nodes} nodes, {args.seconds:g} s, {args.rate:g} samples a second for each."
    report.finish("endure", [row, *held], note)


if __name__ == "__main__":
    main()
