"""A network in blocks of nodes, one a device: who lives where, and mixing with neighbors that live elsewhere."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from omkl.simulator.layout import best, directed
from omkl.simulator.networks import Edges, Linked, Lists, linked
from omkl.topology import Graph, Topology

AXIS = "devices"
BLOCKS = PartitionSpec(AXIS)  # type: ignore[no-untyped-call]

Integers: TypeAlias = npt.NDArray[np.int64]


def block(count: int, devices: int) -> int:
    """Return how many of ``count`` things a device holds; the last devices may hold fewer."""
    return -(-count // devices)


def partition(graph: Graph, devices: int) -> Integers:
    """Return an order of the nodes that cuts few links when split into blocks: the given one, or one by nearness."""
    from scipy.sparse import coo_array  # one device has no use for it, and it takes a while to load
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    adjacency = coo_array((np.ones(len(graph.edges), dtype=np.int8), tuple(graph.edges.T)), shape=(graph.nodes,) * 2)
    near = reverse_cuthill_mckee((adjacency + adjacency.T).tocsr(), symmetric_mode=True).astype(np.int64)
    return min((np.arange(graph.nodes), near), key=lambda order: cut(graph, order, devices))


def cut(graph: Graph, order: Integers, devices: int) -> int:
    """Return the number of links between devices, the nodes dealt out in this order."""
    home = np.argsort(order)[graph.edges] // block(graph.nodes, devices)
    return int((home[:, 0] != home[:, 1]).sum())


@partial(jax.tree_util.register_dataclass, data_fields=["local", "sends"], meta_fields=["shifts", "mesh"])
@dataclass(frozen=True)
class Halo:
    """Mixing in blocks: every device sends others the rows they need of its own, then mixes with what it has.

    Attributes
    ----------
    local
        The network within each device, whose neighbors are places in [own block | rows received].
    sends
        For every shift, the rows of its block that device n sends to device n + shift.
    shifts
        How far rows travel; where nobody sends anything that far, it is left out.
    mesh
        The devices.
    """

    local: Lists | Edges
    sends: tuple[Array, ...]
    shifts: tuple[int, ...]
    mesh: Mesh

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return ``algorithm.mix`` at every node."""

        def mix_block(local: Lists | Edges, sends: tuple[Array, ...], theta: Array, hidden: Array) -> Array:
            received = [self._pass_on(hidden[rows], shift) for rows, shift in zip(sends, self.shifts, strict=True)]
            return local.mix(theta, jnp.concat([hidden, *received]), gamma, radius)

        nodes = theta.shape[0]
        short = block(nodes, self.mesh.size) * self.mesh.size - nodes
        theta, hidden = (jnp.pad(part, [(0, short)] + [(0, 0)] * (part.ndim - 1)) for part in (theta, hidden))
        mixed = jax.shard_map(mix_block, mesh=self.mesh, in_specs=BLOCKS, out_specs=BLOCKS)
        return mixed(self.local, self.sends, theta, hidden)[:nodes]

    def _pass_on(self, rows: Array, shift: int) -> Array:
        devices = self.mesh.size
        pairs = [(n, (n + shift) % devices) for n in range(devices)]
        received: Array = lax.ppermute(rows, AXIS, pairs)  # type: ignore[no-untyped-call]
        return received


class _Links(NamedTuple):
    """Both directions of every link, by receiver as the user numbers them; homes and rows in blocks."""

    receiver: Integers
    receiver_home: Integers
    receiver_row: Integers
    sender_home: Integers
    sender_row: Integers
    weights: npt.NDArray[np.float64]


def network(topology: Topology, places: Integers, mesh: Mesh) -> Linked:
    """Return the topology in blocks, node j at place ``places[j]`` of the order that is dealt out."""
    size = block(topology.nodes, mesh.size)
    links = _links(topology, places, size)
    sends, column = _exchange(links, mesh.size, size)
    local = (_lists if best(topology, clips=True) == "lists" else _edges)(topology, links, column, mesh)
    made = Halo(local, tuple(_spread(mesh, rows) for rows in sends.values()), tuple(sends), mesh)
    return linked(made, topology, np.argsort(places))


def _links(topology: Topology, places: Integers, size: int) -> _Links:
    receiver, sender, weights = directed(topology.graph.edges, topology.weights)
    to, source = places[receiver], places[sender]
    return _Links(receiver, to // size, to % size, source // size, source % size, weights)


def _exchange(links: _Links, devices: int, size: int) -> tuple[dict[int, Integers], Integers]:
    """Return the rows to send by shift, device after device, and where each link's receiver finds its sender."""
    shift, far = (links.receiver_home - links.sender_home) % devices, links.receiver_home != links.sender_home
    # A row goes to a device once, however many there need it; sorted by shift, then by who sends it.
    key = (shift * devices + links.sender_home) * size + links.sender_row
    needs, which = np.unique(key[far], return_inverse=True)
    group, row = np.divmod(needs, size)
    counts = np.bincount(group, minlength=devices**2)
    rank = np.arange(len(needs)) - (np.cumsum(counts) - counts)[group]
    most = counts.reshape(devices, devices).max(axis=1)
    column = links.sender_row.copy()
    column[far] = (size + (np.cumsum(most) - most)[group // devices] + rank)[which]
    sends = {}
    for k in np.flatnonzero(most).tolist():
        mine = group // devices == k
        rows = np.zeros((devices, most[k]), dtype=np.int64)
        rows[group[mine] % devices, rank[mine]] = row[mine]
        sends[k] = rows.reshape(-1)
    return sends, column


def _lists(topology: Topology, links: _Links, column: Integers, mesh: Mesh) -> Lists:
    degrees, size = topology.degrees, block(topology.nodes, mesh.size)
    k = np.arange(len(column)) - (np.cumsum(degrees) - degrees)[links.receiver]
    ids = np.tile(np.arange(size), mesh.size)[:, None].repeat(degrees.max(), axis=1)
    weights = np.zeros(ids.shape)
    place = links.receiver_home * size + links.receiver_row
    ids[place, k], weights[place, k] = column, links.weights
    return Lists(_spread(mesh, ids), _spread(mesh, weights))


def _edges(topology: Topology, links: _Links, column: Integers, mesh: Mesh) -> Edges:
    devices, size = mesh.size, block(topology.nodes, mesh.size)
    order = np.lexsort((links.receiver_row, links.receiver_home))
    home = links.receiver_home[order]
    counts = np.bincount(home, minlength=devices)
    k = np.arange(len(order)) - (np.cumsum(counts) - counts)[home]
    # Filled up with the last row hearing itself at weight zero, which keeps receivers sorted.
    receiver, sender = (np.full((devices, counts.max()), size - 1) for _ in range(2))
    weights = np.zeros(receiver.shape)
    receiver[home, k], sender[home, k], weights[home, k] = (
        links.receiver_row[order],
        column[order],
        links.weights[order],
    )
    return Edges(*(_spread(mesh, part.reshape(-1)) for part in (receiver, sender, weights)))


def _spread(mesh: Mesh, array: npt.NDArray[Any]) -> Array:
    """Return whole numbers or weights in blocks along the first axis, 32 bits each."""
    narrow = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    return jax.make_array_from_callback(narrow.shape, NamedSharding(mesh, BLOCKS), lambda index: narrow[index])
