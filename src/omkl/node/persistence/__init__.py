"""What a node keeps on its disk, so that a restart loses nothing that it has not told of.

saver       all of it for one node: what a node and a simulation of faults talk to
checkpoint  its state in a file that is whole or recognized
count       how many observations it has acknowledged
disk        what all of these ask of a file system
"""

from omkl.node.persistence.saver import Saver, reset, saved

__all__ = ["Saver", "reset", "saved"]
