"""What the dashboard's server takes while somebody looks: its share of a core, and the bytes it sends.

python -m benchmarks.dashboard network [SECONDS]      20 real nodes at 100 rounds a second, by timer
python -m benchmarks.dashboard simulation [SECONDS]   a simulation of 20 nodes that takes 100 rounds a second
"""

import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path

import numpy as np
from benchmarks import report

import omkl
from omkl.dashboard import Recorder
from omkl.node.cluster import free_ports
from omkl.simulator.watching import Look

NODES, RATE = 20, 100
NETWORK = """
name = "watched"
inputs = 2
{nodes}
[learning]
topology = "ring"
[learning.method]
name = "gossip"
quantizer = "nearest"
[timing]
mode = "timer"
period = {period}
"""


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    with process:
        try:
            yield process
        finally:
            process.terminate()


def omkl_process(*args: str, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "omkl.cli", *args], env=os.environ | environment, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


class Visitor:
    """Reads events as a page does, and counts them, until the server ends."""

    def __init__(self, port: int, token: str, run: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/runs/{run}/events")
        request.add_header("Authorization", f"Bearer {token}")
        self._answer = _patiently(request)
        self.bytes = self.frames = 0
        self.last = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with self._answer, suppress(OSError, HTTPException):
            for line in self._answer:
                self.bytes += len(line)
                if b'"event":"frame"' in line:
                    self.frames, self.last = self.frames + 1, line.decode()

    def leave(self) -> None:
        """Wait for the last event of a server that has ended."""
        self._reader.join()

    def wait(self, number: int) -> None:
        """Wait until a frame of this round or a later one has come."""
        until = time.monotonic() + 60
        while self.round < number:
            if time.monotonic() > until:
                raise TimeoutError(f"round {number} has not come within a minute; the last one was {self.round}")
            time.sleep(0.1)

    @property
    def round(self) -> int:
        return int(self.last.partition('"round":')[2].partition(",")[0] or 0)


def _patiently(request: urllib.request.Request) -> HTTPResponse:
    until = time.monotonic() + 60
    while True:
        try:
            answer: HTTPResponse = urllib.request.urlopen(request, timeout=60)
            return answer
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def seconds_of(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(source: Path, run: str, seconds: float) -> report.Row:
    """Return what the server takes and sends, after a second of the run."""
    (port,), token = free_ports(1), secrets.token_hex(8)
    flags = ("dashboard", str(source), "--port", str(port), "--no-browser")
    with ended(omkl_process(*flags, OMKL_DASHBOARD_TOKEN=token)) as server:
        visitor = Visitor(port, token, run)
        visitor.wait(RATE)
        at, busy = time.monotonic(), seconds_of(server.pid)
        heard, frames, first = visitor.bytes, visitor.frames, visitor.round
        time.sleep(seconds)
        visitor.wait(first + 1)  # where the machine is busy, a short time has no frame
        took = time.monotonic() - at
        row: report.Row = {
            "seconds": took,
            "rounds/s": (visitor.round - first) / took,
            "% of a core": 100 * (seconds_of(server.pid) - busy) / took,
            "frames/s": (visitor.frames - frames) / took,
            "kB/s": (visitor.bytes - heard) / took / 1000,
        }
    visitor.leave()
    return row


def network(seconds: float, count: int = NODES) -> report.Row:
    ports = free_ports(count)
    nodes = "".join(f'[[nodes]]\nid = "n{k}"\nlisten = "tcp/127.0.0.1:{port}"\n' for k, port in enumerate(ports))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "network.toml"
        file.write_text(NETWORK.format(nodes=nodes, period=1 / RATE))
        rng = np.random.default_rng(0)
        for k in range(count):
            flags = ("--network", str(file), "--id", f"n{k}", "--input", "-")
            node = stack.enter_context(ended(omkl_process("node", *flags)))
            assert node.stdin
            for x in rng.normal(size=(200, 2)):
                node.stdin.write(f'{{"x": [{x[0]:.3f}, {x[1]:.3f}], "y": {1 if x[0] * x[1] > 0 else -1}}}\n'.encode())
            node.stdin.flush()
        return {"what": "network", "nodes": count} | measure(file, "network", seconds)


class Paced(Recorder):
    """Holds a run up, so that it takes so many rounds a second, and ends it when told."""

    def __init__(self, folder: str, done: threading.Event) -> None:
        super().__init__(folder)
        self.done = done

    def see(self, look: Look) -> None:
        super().see(look)
        if self.done.is_set():
            raise KeyboardInterrupt
        self.began = getattr(self, "began", time.monotonic() - (look.rounds[-1] + 1) / RATE)
        time.sleep(max(0.0, self.began + (look.rounds[-1] + 1) / RATE - time.monotonic()))


def simulation(seconds: float, count: int = NODES) -> report.Row:
    rounds, done = int(RATE * (seconds + 120)), threading.Event()
    X = np.random.default_rng(0).normal(size=(rounds, count, 2)).astype(np.float32)
    y = np.where(X.prod(axis=2) > 0, 1, -1)
    with tempfile.TemporaryDirectory() as folder:

        def simulate() -> None:
            with suppress(KeyboardInterrupt), Paced(folder, done) as watch:
                omkl.simulate((X, y), "ring", watch=watch)

        run = threading.Thread(target=simulate)
        run.start()
        try:
            while not (Path(folder) / "events.jsonl").exists():
                time.sleep(0.1)
            return {"what": "simulation", "nodes": count} | measure(Path(folder), Path(folder).name, seconds)
        finally:
            done.set()
            run.join()


def main(which: str, seconds: str = "20") -> None:
    row = {"network": network, "simulation": simulation}[which](float(seconds))
    report.finish("dashboard", [row], "What the server takes of a core, and sends, while one page is open.")


if __name__ == "__main__":
    main(*sys.argv[1:])
