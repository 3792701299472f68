"""Machines of one's own: network namespaces joined by wires that can be cut and that lose packets."""

import os
import re
import subprocess
from collections.abc import Sequence
from typing import Self

LOSS = 0.1
# Classic BPF: load a random word; let go if it is not below LOSS * 2**32, else match.
LOSE = f"4,32 0 0 {2**32 - 4096 + 56},53 1 0 {int(LOSS * 2**32)},6 0 0 {2**32 - 1},6 0 0 0"


class Denied(Exception):
    """What the machine does not allow."""


class Wires:
    """A namespace for each of a row of nodes, and a wire between any two that follow each other.

    Node k is at ``10.200.k.1`` for the next one, and at ``10.200.k-1.2`` for the one before.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = list(ids)
        self.hosts = [f"10.200.{k}.1" for k in range(len(ids))]

    def __enter__(self) -> Self:
        try:
            for k, id in enumerate(self.ids):
                _run("ip", "netns", "add", self._name(id))
                _run("ip", "-n", self._name(id), "link", "set", "lo", "up")
                if k:
                    self._join(k - 1, k)
            self._address(len(self.ids) - 1, "lo", self.hosts[-1])  # nobody follows the last one
        except Denied:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for id in self.ids:
            subprocess.run(["ip", "netns", "del", self._name(id)], capture_output=True)

    def prefix(self, id: str) -> list[str]:
        """Return what to write before a command to run it there."""
        return ["ip", "netns", "exec", self._name(id)]

    def cut(self, id: str) -> None:
        """Cut the wire to the next node."""
        _run("ip", "-n", self._name(id), "link", "set", "next", "down")

    def mend(self, id: str) -> None:
        _run("ip", "-n", self._name(id), "link", "set", "next", "up")

    def lose(self, id: str) -> None:
        """Lose packets on the wire to the next node, both ways."""
        for name, device in ((self._name(id), "next"), (self._name(self.ids[self.ids.index(id) + 1]), "before")):
            try:
                _run("tc", "-n", name, "qdisc", "add", "dev", device, "root", "netem", "loss", f"{100 * LOSS:g}%")
            except Denied:  # this kernel has no netem: what a filter finds at random goes to a device that is down
                _run("ip", "-n", name, "link", "add", f"{device}-sink", "type", "veth", "peer", f"{device}-end")
                _run("tc", "-n", name, "qdisc", "add", "dev", device, "clsact")
                where = ("tc", "-n", name, "filter", "add", "dev", device, "ingress", "bpf", "bytecode", LOSE)
                _run(*where, "action", "mirred", "egress", "redirect", "dev", f"{device}-sink")

    def lost(self, id: str) -> int:
        """Return how many packets were lost on their way from the next node."""
        show = ("-s", "-n", self._name(id))
        told = _run("tc", *show, "qdisc", "show", "dev", "next") + _run(
            "tc", *show, "filter", "show", "dev", "next", "ingress"
        )
        return sum(map(int, re.findall(r"dropped (\d+)", told)))

    def _name(self, id: str) -> str:
        return f"omkl-{os.getpid()}-{id}"

    def _join(self, one: int, other: int) -> None:
        names = [self._name(self.ids[k]) for k in (one, other)]
        _run("ip", "link", "add", "next", "netns", names[0], "type", "veth", "peer", "before", "netns", names[1])
        self._address(one, "next", self.hosts[one])
        self._address(other, "before", f"10.200.{one}.2")

    def _address(self, k: int, device: str, address: str) -> None:
        name = self._name(self.ids[k])
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
        _run("ip", "-n", name, "link", "set", device, "up")


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise Denied(f"there is no {command[0]} on this machine") from None
    if done.returncode:
        raise Denied(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
