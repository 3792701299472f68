"""Runs over many devices, of one process or of several: seeds are dealt out, or the nodes of one network.

Everything but mixing is elementwise or a mean, which XLA partitions by itself once its arguments are sharded. Mixing
exchanges boundary rows explicitly (``halo``). Lengths need not divide: arrays are filled up to equal blocks between
programs, and trimmed within them, where XLA allows the last blocks to be short. So no method ever sees a filler.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from omkl.arrays import Array
from omkl.errors import InputError, pick, whole
from omkl.methods import Network
from omkl.simulator import halo
from omkl.simulator.networks import network
from omkl.simulator.placement import Placement
from omkl.topology import Topology


@dataclass(frozen=True)
class Sharded(Placement):
    """Several devices, each with a block of the nodes, or of the seeds."""

    mesh: Mesh
    shard: str
    count: int
    """How many nodes, or seeds."""
    order: npt.NDArray[np.int64] = field(compare=False, repr=False)
    """Which of them stands at each place."""

    @property
    def devices(self) -> int:
        """How many devices share the work."""
        return int(self.mesh.size)

    @property
    def spreads_nodes(self) -> bool:
        """Whether each device has some of the nodes only."""
        return self.shard == "nodes"

    @property
    def _length(self) -> int:
        return halo.block(self.count, self.devices) * self.devices

    def network(self, topology: Topology, clips: bool = False) -> Network:
        """Return the topology cut into blocks, or whole on every device where seeds are spread."""
        whole = partial(jax.tree.map, lambda leaf: self.put(np.asarray(leaf)))
        if self.shard == "seeds":
            return whole(network(topology, clips))  # type: ignore[no-any-return]
        made = halo.network(topology, np.argsort(self.order), self.mesh)
        return made._replace(degree=whole(made.degree), sums=whole(made.sums))

    def put(self, array: npt.NDArray[Any], nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return the array in blocks along the axis that is spread, if it has it; a device is sent its own alone."""
        axis = self._axis(self.count, array, nodes, seeds)
        if axis is None:
            return jax.make_array_from_callback(array.shape, self._blocks(None), lambda index: array[index])
        shape = (*array.shape[:axis], self._length, *array.shape[axis + 1 :])
        places = np.pad(self.order, (0, self._length - self.count), mode="edge")

        def block(index: Any) -> Array:
            return np.take(array, places[index[axis]], axis)

        return jax.make_array_from_callback(shape, self._blocks(axis), block)

    def start(self, make: Callable[[], Any]) -> Any:
        """Return the states that ``make`` makes, made where they live."""
        return jax.jit(lambda: jax.tree.map(partial(self.fill, nodes=0, seeds=1), make()))()

    def trim(self, array: Array, nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return a placed array without what fills it up."""
        axis = self._axis(self._length, array, nodes, seeds)
        if axis is None:
            return array
        return self._constrain(lax.slice_in_dim(array, 0, self.count, axis=axis), axis)

    def fill(self, array: Array, nodes: int | None = None, seeds: int | None = None) -> Array:
        """Return the array filled up to equal blocks; whole on every device if it lacks the axis that is spread."""
        axis = self._axis(self.count, array, nodes, seeds)
        if axis is None:
            return self._constrain(array, None)
        widths = [(0, self._length - self.count if k == axis else 0) for k in range(array.ndim)]
        return self._constrain(jnp.pad(array, widths), axis)

    def take(self, states: Any) -> Any:
        """Return the states as NumPy arrays on every process, nodes and seeds in the user's order."""
        places = np.argsort(self.order)

        def collect(leaf: jax.Array) -> npt.NDArray[Any]:
            local = leaf.is_fully_addressable
            found = np.asarray(leaf) if local else multihost_utils.process_allgather(leaf, tiled=True)
            axis = self._axis(self._length, found, 0, 1)
            return found if axis is None else found.take(places, axis)

        return jax.tree.map(collect, states)

    def describe(self, topology: Topology) -> dict[str, Any]:
        """Return the number of devices, what is spread over them, and the links between devices."""
        cut = halo.cut(topology.graph, self.order, self.devices) if self.shard == "nodes" else 0
        return {"count": self.devices, "shard": self.shard, "cut": cut}

    def _axis(self, length: int, array: Array, nodes: int | None, seeds: int | None) -> int | None:
        """Return the axis that is spread; None where the array lacks it, as a state that all nodes hold in common."""
        axis = nodes if self.shard == "nodes" else seeds
        return axis if axis is not None and axis < array.ndim and array.shape[axis] == length else None

    def _blocks(self, axis: int | None) -> NamedSharding:
        spec = () if axis is None else (*(None,) * axis, halo.AXIS)
        return NamedSharding(self.mesh, PartitionSpec(*spec))  # type: ignore[no-untyped-call]

    def _constrain(self, array: Array, axis: int | None) -> Array:
        return lax.with_sharding_constraint(array, self._blocks(axis))  # type: ignore[no-untyped-call]


def place(devices: int, shard: str | None, graphs: Sequence[Topology], seeds: int) -> Placement:
    """Return where a run lives: seeds are spread if they are enough for all devices, else nodes, unless told.

    The sparsest of the graphs says in which order nodes are dealt out.
    """
    devices = whole("devices", devices)
    if shard is not None:
        pick("shard", shard, dict.fromkeys(("nodes", "seeds")))
    if devices == 1:
        return Placement()
    mesh = Mesh(np.array(_devices(devices)), (halo.AXIS,))
    if (shard or ("seeds" if seeds >= devices else "nodes")) == "seeds":
        return Sharded(mesh, "seeds", seeds, np.arange(seeds))
    graph = min((topology.graph for topology in graphs), key=lambda graph: len(graph.edges))
    return Sharded(mesh, "nodes", graph.nodes, halo.partition(graph, devices))


def _devices(count: int) -> list[jax.Device]:
    """Return as many devices of every process as of any other."""
    found, processes = jax.devices(), jax.process_count()
    if count > len(found):
        raise InputError(
            f"devices is {count}; JAX has {len(found)} ({found[0].platform}); ask for at most {len(found)}, or, to "
            f"split a CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={count} before Python starts"
        )
    own = [[device for device in found if device.process_index == process] for process in range(processes)]
    if count % processes or count // processes > min(map(len, own)):
        raise InputError(
            f"devices is {count} for {processes} processes with {[len(one) for one in own]} devices; each must give "
            f"as many as any other; pass devices={processes * min(map(len, own))}"
        )
    return [device for one in own for device in one[: count // processes]]


def join(
    coordinator: str | None, processes: int | None, process: int | None, tell: Callable[[str], None] = lambda _: None
) -> None:
    """Join this process to others, so that ``devices`` are those of all; before anything else uses JAX.

    ``coordinator`` is the address HOST:PORT at which process 0 listens, the same for all. All processes then make the
    same calls, and all have the results.
    """
    if coordinator is None or processes is None or process is None:
        raise InputError(
            f"coordinator is {coordinator}, processes {processes}, process {process}; several processes need all "
            "three; pass --coordinator HOST:PORT --processes 2 --process 0"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"coordinator is {coordinator}; it must be an address; pass HOST:PORT, as in 10.0.0.1:4567")
    if not 0 <= process < whole("processes", processes):
        raise InputError(f"process is {process} of {processes}; they are numbered from 0; pass 0 ... {processes - 1}")
    tell(f"process {process} of {processes} meets the others at {coordinator}")  # JAX waits for them in silence
    jax.distributed.initialize(coordinator, processes, process)
