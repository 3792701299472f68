"""Deterministic fault simulation: a network under seeded faults, in virtual time, and what must hold of it throughout.

One seed decides everything: the network, its streams, and a schedule of faults. Nodes are the real ``Protocol`` objects
on an extension of the network in memory; what they save is real too, on a disk in memory. So a failure is replayed by
its seed, to the bit:

    campaign         a run by its seed, or many; the report
    shape            the network that a seed draws
    faults           what happens
    world            the nodes, with disks and streams, and how faults begin and end
    arena            the network in memory, with clocks, slow nodes and messages that are hit
    disk             a disk that is full, torn, rotten, old or lost
    invariants       what must hold
    learning_oracle  what was learned, computed again
    beginnings       what nodes begin with
    order            what neighbors owe each other in lock step
    streams          what became of every observation
    trace            what happened, to read and to compare
    violation        what ends a run
"""

from omkl_lab.torture.campaign import Report, run, runs
from omkl_lab.torture.faults import ALL, FAULTS, MORE, Faults
from omkl_lab.torture.invariants import Invariants
from omkl_lab.torture.violation import Violation

__all__ = ["ALL", "FAULTS", "MORE", "Faults", "Invariants", "Report", "Violation", "run", "runs"]
