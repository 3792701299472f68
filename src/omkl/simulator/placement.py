"""Where the arrays of a run live: all that the engine asks of it. Over several devices it is ``sharding.Sharded``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy.typing as npt

from omkl.arrays import Array
from omkl.methods import Network
from omkl.simulator.networks import network
from omkl.topology import Topology


@dataclass(frozen=True)
class Placement:
    """One device: arrays are as they are given.

    Of an array, ``nodes`` and ``seeds`` say which of its axes these are. A placement is an argument that programs are
    compiled for, so it compares by what they depend on.
    """

    @property
    def devices(self) -> int:
        """How many devices share the work."""
        return 1

    @property
    def spreads_nodes(self) -> bool:
        """Whether each device has some of the nodes only."""
        return False

    def network(self, topology: Topology, clips: bool = False) -> Network:
        """Return the way of mixing that suits the topology here."""
        return network(topology, clips)

    def put(self, array: npt.NDArray[Any], nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return an array of the user's as it is placed."""
        return jnp.asarray(array)

    def start(self, make: Callable[[], Any]) -> Any:
        """Return the states that ``make`` makes, placed."""
        return make()

    def trim(self, array: Array, nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return, within a compiled program, a placed array without what fills it up."""
        return array

    def fill(self, array: Array, nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return, within a compiled program, an array as it is placed: the inverse of ``trim``."""
        return array

    def take(self, states: Any) -> Any:
        """Return placed states as NumPy arrays, nodes and seeds in the user's order."""
        return jax.device_get(states)

    def describe(self, topology: Topology) -> dict[str, Any]:
        """Return what goes into the record: how many devices, what is spread, and how many links that cuts."""
        return {"count": 1, "shard": None, "cut": 0}
