"""A node added and one removed while samples flow, by the steps of docs/deploy.md, typed as they stand.

    python -m benchmarks.membership --nodes 12

Every node is a process under TLS that has files of its own, as on a device of its own. ``ssh``, ``scp`` and
``systemctl`` are stand-ins that reach those; all else is what the page says, but for addresses of this machine.
"""

import argparse
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks import fleet, report

from omkl import storage
from omkl.node.cluster import free_ports

PAGE = Path(__file__).parent.parent / "docs" / "deploy.md"
IDS = "abcdefghijkl"
NEW, GONE = "m", "a"
PATIENCE = 120.0  # seconds after which what is waited for has failed to happen
LIFE = 900  # seconds after which sensors end by themselves
POLL = 0.1

SENSOR = """
import math, os, random, sys, time
index, stop, pause, end = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), time.monotonic() + {life}
print("east,north,y", flush=True)
while not os.path.exists(stop) and time.monotonic() < end:
    angle, radius = 2 * math.pi * (index % 3 + random.random()) / 3, 2 * math.sqrt(random.random())
    warm = 1 if radius < 1.3 + 0.5 * math.sin(2 * angle) else -1
    print(f"{{radius * math.cos(angle):.3f}},{{radius * math.sin(angle):.3f}},{{warm}}", flush=True)
    time.sleep(pause)
"""

STAND_INS = {
    "omkl": 'exec {python} -c {program} "$@"',
    "scp": """to=${{@: -1}} host=${{to%%:*}}
device={root}/devices/${{host#*@}}${{to#*:}}
mkdir -p "$device" && cp "${{@:1:$#-1}}" "$device" """,
    "ssh": """device={root}/devices/${{1#*@}}
shift; mkdir -p "$device"; cd "$device"; DEVICE=$device exec bash -euc "${{*// \\/etc\\// $device/etc/}}" """,
    "chown": "",  # all is one user's here
    "systemctl": """unit=${{@: -1}} id=${{unit#*@}}
gone() {{ state=$(ps -o stat= -p $1) || return 0; [ "${{state:0:1}}" = Z ]; }}
case $1 in restart | disable) kill -TERM $(cat pid); until gone $(cat pid); do sleep 0.05; done ;; esac
case $1 in restart | enable) setsid {root}/bin/service $id >> predictions 2>> log < /dev/null & echo $! > pid ;; esac
""",
    "service": """exec {root}/bin/omkl node --network "$DEVICE/etc/omkl/network.toml" --id $1 --input - \\
    --format-in csv --predictions --log-format json \\
    < <(exec {python} {root}/sensor.py $(printf %d "'$1") {root}/stop {pause})""",
}


class Loss(NamedTuple):
    """What a node predicted since some moment."""

    samples: int
    mean: float


class Devices:
    """A desk with the network's file, and a folder for each device with a node at work."""

    def __init__(self, root: Path, ids: Sequence[str], pause: float = 0.05, compiled: bool = True) -> None:
        self.root, self.desk, self.ids = root, root / "desk", list(ids)
        program = f'"{fleet.COMPILED if compiled else fleet.PLAIN}"'
        (root / "bin").mkdir()
        self.desk.mkdir()
        (root / "sensor.py").write_text(SENSOR.format(life=LIFE))
        for name, text in STAND_INS.items():
            script = root / "bin" / name
            made = text.format(root=root, python=sys.executable, program=program, pause=pause)
            script.write_text(f"#!/usr/bin/env bash\nset -eu\n{made}\n")
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def type(self, line: str) -> str:
        """Return what a command prints that is typed at the desk."""
        env = os.environ | {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        ran = subprocess.run(
            ["bash", "-euc", line],
            cwd=self.desk,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{line}: {ran.stderr}")
        return ran.stdout

    def device(self, id: str) -> Path:
        """Return where the files of a device are."""
        return self.root / "devices" / f"sensor-{id}.local"

    def pid(self, id: str) -> int:
        return int((self.device(id) / "pid").read_text())

    def events(self, id: str, name: str) -> list[dict[str, Any]]:
        """Return the lines of one kind that a node has logged, in all its lives."""
        lines = (self.device(id) / "log").read_text().splitlines()
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in told if event["event"] == name]

    def losses(self, id: str) -> list[float]:
        """Return the loss of every sample that a node has taken."""
        path = self.device(id) / "predictions"
        lines = path.read_text().splitlines()[:-1] if path.exists() else []
        return [json.loads(line)["loss"] for line in lines]

    def since(self, marks: dict[str, int]) -> dict[str, Loss]:
        """Return the mean loss of each node since it had taken so many samples."""
        found = {id: self.losses(id)[marks.get(id, 0) :] for id in self.ids}
        return {
            id: Loss(len(losses), float(np.mean(losses)) if losses else float("nan")) for id, losses in found.items()
        }

    def marks(self) -> dict[str, int]:
        return {id: len(self.losses(id)) for id in self.ids}

    def wait(self, what: str, until: Callable[[], bool]) -> float:
        """Wait for something, and return how long it took."""
        since = time.monotonic()
        while not until():
            if time.monotonic() > since + PATIENCE:
                raise TimeoutError(f"{what}: not in {PATIENCE:g} s")
            time.sleep(POLL)
        return time.monotonic() - since

    def flow(self, samples: int) -> dict[str, Loss]:
        """Let every node take so many samples more, and return its loss over them."""
        marks = self.marks()
        self.wait(f"{samples} samples more", lambda: all(one.samples >= samples for one in self.since(marks).values()))
        return self.since(marks)

    def close(self) -> None:
        """End what is left of it."""
        (self.root / "stop").touch()
        for file in self.root.glob("devices/*/pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)

    def copies(self) -> tuple[int, int]:
        """Let all come to rest and leave; return how many copies their checkpoints hold, and how many are level."""
        (self.root / "stop").touch()
        marks: list[Any] = [None]

        def rests() -> bool:
            marks.append(self.marks())
            return len(marks) > 20 and marks[-1] == marks[-20]

        self.wait("rest", rests)
        lives = {id: len(self.events(id, "left")) for id in self.ids}
        for id in self.ids:
            os.kill(self.pid(id), signal.SIGTERM)
        self.wait("leave", lambda: all(len(self.events(id, "left")) > lives[id] for id in self.ids))
        kept = {id: storage.load(self.device(id) / "etc/omkl/checkpoints" / f"{id}.npz") for id in self.ids}
        pairs = [
            (id, k, peer) for id, one in kept.items() for k, peer in enumerate(one.header["links"]) if peer in kept
        ]
        return len(pairs), sum(_is_level(kept[id], k, kept[peer], peer) for id, k, peer in pairs)


def _is_level(holder: storage.Content, k: int, owner: storage.Content, peer: str) -> bool:
    link = holder.header["links"][peer]
    same = (link["boot"], link["round"]) == (owner.header["boot"], owner.header["round"])
    return same and np.array_equal(holder.arrays["copies"][k], owner.arrays["hidden"])


def steps(heading: str, hosts: str) -> list[str]:
    """Return the commands of a part of the page, as they stand but for where the nodes listen."""
    part = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", part, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("#")]
    return [re.sub(r"--host \S+", hosts, line) for line in lines]


def changed(
    folder: Path, ids: Sequence[str] = IDS, samples: int = 100, pause: float = 0.05, compiled: bool = True
) -> Any:
    """Yield how a network stands before, after a node was added, and after another was removed."""
    devices = Devices(folder, ids, pause, compiled)
    try:
        (first,) = free_ports(1)
        devices.type(
            f"omkl node init --tls --ids {','.join(ids)} --port {first} --metrics none --topology ring && "
            "omkl node certificates"
        )
        for id in ids:
            host = f"root@sensor-{id}.local"
            own = " ".join(f"certificates/{name}" for name in ("ca.pem", f"{id}.pem", f"{id}.key"))
            devices.type(
                f"scp network.toml {host}:/etc/omkl/ && scp {own} {host}:/etc/omkl/certificates/ && "
                f"ssh {host} systemctl enable --now omkl-node@{id}"
            )
        devices.flow(samples)
        yield _row("before", devices, devices.flow(samples))
        for heading, new, gone in (("Add a node", NEW, ""), ("Remove a node", "", GONE)):
            pids = {id: devices.pid(id) for id in devices.ids if id != gone}
            for line in steps(heading, ""):
                devices.type(line)
            devices.ids = [id for id in [*devices.ids, *new] if id != gone]
            joined = devices.flow(samples)
            others = sorted(id for id, pid in pids.items() if pid != devices.pid(id))
            yield _row(heading.lower(), devices, devices.flow(samples)) | {
                "restarted": " ".join(others),
                "its first": f"{joined[new].mean:.3f}" if new else "",
            }
        every, level = devices.copies()
        yield {"": "at rest", "copies": every, "level": level}
    finally:
        devices.close()


def _row(what: str, devices: Devices, losses: dict[str, Loss]) -> dict[str, Any]:
    means = [one.mean for one in losses.values()]
    told = {"": what, "nodes": len(means), "samples": sum(one.samples for one in losses.values())}
    return told | {"loss": f"{np.mean(means):.3f}", "worst": f"{max(means):.3f}"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--samples", type=int, default=300)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        rows = list(changed(folder, IDS[: given.nodes - 1] + "l", given.samples))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report.finish(
        "membership", rows, f"{given.nodes} processes under TLS, one added and one removed while samples flow"
    )


if __name__ == "__main__":
    main()
