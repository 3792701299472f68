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
from pathlib import Path

import numpy as np

import omkl
from omkl.dashboard import Recorder
from omkl.node.cluster import free_ports
from omkl.simulator.watching import Look

NODES, RATE = 20, 100
DONE = threading.Event()
NETWORK = """
name = "watched"
inputs = 2
{nodes}
[learning]
topology = "ring"
[learning.method]
quantizer = "nearest"
[timing]
mode = "timer"
period = {period}
"""


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def omkl_process(*args: str, **environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "omkl.cli", *args], env=os.environ | environment, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


class Visitor:
    """Reads events as a page does, and counts them."""

    def __init__(self, port: int, token: str, run: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/api/runs/{run}/events")
        request.add_header("Authorization", f"Bearer {token}")
        self._answer = _patiently(request)
        self.bytes = self.frames = 0
        self.last = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._answer:
            self.bytes += len(line)
            if b'"event":"frame"' in line:
                self.frames, self.last = self.frames + 1, line.decode()

    @property
    def round(self) -> int:
        return int(self.last.partition('"round":')[2].partition(",")[0] or 0)


def _patiently(request: urllib.request.Request) -> "Iterator[bytes]":
    until = time.monotonic() + 60
    while True:
        try:
            return urllib.request.urlopen(request, timeout=60)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def seconds_of(pid: int) -> float:
    """Return the processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(source: Path, run: str, seconds: float) -> None:
    (port,), token = free_ports(1), secrets.token_hex(8)
    flags = ("dashboard", str(source), "--port", str(port), "--no-browser")
    with ended(omkl_process(*flags, OMKL_DASHBOARD_TOKEN=token)) as server:
        visitor = Visitor(port, token, run)
        while visitor.round < RATE:
            time.sleep(0.1)
        at, busy = time.monotonic(), seconds_of(server.pid)
        heard, frames, first = visitor.bytes, visitor.frames, visitor.round
        time.sleep(seconds)
        took = time.monotonic() - at
        print(
            f"{NODES} nodes at {(visitor.round - first) / took:.0f} rounds/s over {took:.0f} s: the server takes "
            f"{(seconds_of(server.pid) - busy) / took:.1%} of a core, and sends {(visitor.frames - frames) / took:.1f} "
            f"frames and {(visitor.bytes - heard) / took / 1000:.1f} kB a second"
        )


def network(seconds: float) -> None:
    ports = free_ports(NODES)
    nodes = "".join(f'[[nodes]]\nid = "n{k}"\nlisten = "tcp/127.0.0.1:{port}"\n' for k, port in enumerate(ports))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "network.toml"
        file.write_text(NETWORK.format(nodes=nodes, period=1 / RATE))
        rng = np.random.default_rng(0)
        for k in range(NODES):
            flags = ("--network", str(file), "--id", f"n{k}", "--input", "-")
            node = stack.enter_context(ended(omkl_process("node", *flags)))
            assert node.stdin
            for x in rng.normal(size=(200, 2)):
                node.stdin.write(f'{{"x": [{x[0]:.3f}, {x[1]:.3f}], "y": {1 if x[0] * x[1] > 0 else -1}}}\n'.encode())
            node.stdin.flush()
        measure(file, "network", seconds)


class Paced(Recorder):
    """Holds a run up, so that it takes so many rounds a second."""

    def see(self, look: Look) -> None:
        super().see(look)
        if DONE.is_set():
            raise KeyboardInterrupt
        self.began = getattr(self, "began", time.monotonic() - (look.rounds[-1] + 1) / RATE)
        time.sleep(max(0.0, self.began + (look.rounds[-1] + 1) / RATE - time.monotonic()))


def simulation(seconds: float) -> None:
    rounds = int(RATE * (seconds + 20))
    X = np.random.default_rng(0).normal(size=(rounds, NODES, 2)).astype(np.float32)
    y = np.where(X.prod(axis=2) > 0, 1, -1)
    with tempfile.TemporaryDirectory() as folder:

        def simulate() -> None:
            with suppress(KeyboardInterrupt), Paced(folder) as watch:
                omkl.simulate((X, y), "ring", watch=watch)

        run = threading.Thread(target=simulate)
        run.start()
        while not (Path(folder) / "events.jsonl").exists():
            time.sleep(0.1)
        measure(Path(folder), Path(folder).name, seconds)
        DONE.set()
        run.join()


if __name__ == "__main__":
    {"network": network, "simulation": simulation}[sys.argv[1]](float(sys.argv[2]) if len(sys.argv) > 2 else 20.0)
