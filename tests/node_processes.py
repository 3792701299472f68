"""Daemons in processes of their own, on loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from benchmarks import fleet

from omkl.node.cluster import free_ports

LIMIT = 120.0  # seconds, after which a daemon that hangs is killed

CHECKPOINT = '[checkpoint]\nfolder = "kept"\nevery = 5\n'
NETWORK = """
name = "test"
inputs = 2
{top}
{nodes}
[learning]
topology = "path"
seed = 3
[learning.method]
name = "gossip"
kernels = {{gaussian = [1, 3]}}
features = 8
eta = 1.0
gamma = 0.5
quantizer = {{name = "nearest", step = 2.5}}
[timing]
deadline = {deadline}
patience = {patience}
{tables}
"""


def write_network(
    folder: Path, ids: str = "ab", *, deadline: float = 20.0, patience: float = 0.25, scheme: str = "tcp",
    metrics: bool = False, top: str = "", tables: str = "",
) -> Path:  # fmt: skip
    """Return the file of a network on free ports."""
    ports = free_ports(2 * len(ids))
    nodes = ""
    for id, port, page in zip(ids, ports[::2], ports[1::2], strict=True):
        nodes += f'[[nodes]]\nid = "{id}"\nlisten = "{scheme}/127.0.0.1:{port}"\n'
        nodes += f'metrics = "127.0.0.1:{page}"\n' if metrics else ""
    path = folder / "network.toml"
    path.write_text(NETWORK.format(top=top, nodes=nodes, deadline=deadline, patience=patience, tables=tables))
    return path


def samples(count: int, seed: int = 0) -> list[tuple[list[float], int]]:
    X = np.random.default_rng(seed).normal(size=(count, 2)).round(3)
    return [(x.tolist(), 1 if x[0] * x[1] > 0 else -1) for x in X]


def as_csv(rows: list[tuple[list[float], int]]) -> str:
    return "u,v,y\n" + "".join(f"{x[0]},{x[1]},{y}\n" for x, y in rows)


def as_json(rows: list[tuple[list[float], int]]) -> str:
    return "".join(json.dumps({"x": x, "y": y}) + "\n" for x, y in rows)


def omkl(*args: Any, plain: bool = False, files: int | None = None, **options: Any) -> "subprocess.Popen[str]":
    """Start a command, on demand with so many descriptors at most.

    A plain one goes without Numba, which takes longer to load than all the rest.
    """
    code = fleet.PLAIN if plain else fleet.COMPILED
    if files is not None:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); {code}"
    return subprocess.Popen([sys.executable, "-c", code, *map(str, args)], text=True, **options)


class Daemon:
    """``omkl node`` at work without Numba, and its log; processes of ``test_node_cluster`` have compiled rounds."""

    def __init__(
        self, network: Path, id: str, *args: Any, files: int | None = None, stdin: Any = subprocess.PIPE,
        stdout: Any = subprocess.PIPE, stderr: Any = subprocess.PIPE,
    ) -> None:  # fmt: skip
        flags = ("--network", network, "--id", id, "--log-format", "json", *args)
        pipes = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        self.process = omkl("node", *flags, env=os.environ, plain=True, files=files, **pipes)
        self.events: list[dict[str, Any]] = []
        self._guard = threading.Timer(LIMIT, self.process.kill)
        self._guard.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._guard.cancel()
        self.process.kill()
        with self.process:  # closes its pipes and waits for its end
            pass

    def until(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return the next line of the log that tells of an event with these fields."""
        assert self.process.stderr
        for line in self.process.stderr:
            told: dict[str, Any] = json.loads(line)
            self.events.append(told)
            if {"event": event, **fields}.items() <= told.items():
                return told
        raise AssertionError(f"no {event} {fields}; it ended with {self.process.wait()} after {self.events}")

    def write(self, text: str) -> None:
        """Give it lines on standard input."""
        assert self.process.stdin
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def end_input(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, dict[str, Any]]:
        """Send a signal, and return the exit code and the last line of the log."""
        self.process.send_signal(number)
        return self.left()

    def left(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the last line of the log, once it has left."""
        told = self.until("left")
        return self.process.wait(), told


@contextmanager
def daemons(network: Path, *ids: str, args: tuple[Any, ...] = ()) -> Iterator[list[Daemon]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Daemon(network, id, *args)) for id in ids]
