"""The configuration of a network: its nodes, their links, what they learn, and how they wait for each other.

One file, ``network.toml``, is the same on every device. Its ``learning`` has the schema of a simulation's spec, so that
what was simulated is what is deployed. Everything is checked when the file is read, on every node alike.
"""

import copy
import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from omkl import config
from omkl import topology as topologies
from omkl.config import Table
from omkl.errors import InputError, unknown, whole
from omkl.experiment import Experiment
from omkl.methods import Gossip, for_inputs
from omkl.methods.tables import as_table
from omkl.node import checks
from omkl.node.labels import Labels
from omkl.node.role import DIGEST_BYTES, Role
from omkl.node.settings import Access, Calibration, Checkpoint, Member, Timing, Tls, check_word
from omkl.scaling import Inputs
from omkl.topology import Graph, Schedule, Topology

__all__ = ["Access", "Calibration", "Checkpoint", "Member", "NetworkConfig", "Timing", "Tls", "load", "parse"]


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """A network, the same for each of its nodes.

    Attributes
    ----------
    name
        Keeps networks apart that share a wire.
    inputs
        d, the length of x.
    method, seed
        What all nodes learn with: ``Gossip``, or ``Choco`` without ``fresh``.
    topology
        The graph over the members, in their order, and its gossip weights.
    standardize
        Whether each node brings inputs to mean 0 and deviation 1 by running moments of its own; for nodes that see
        like data (``omkl.scaling``).
    calibration
        Unlabelled inputs ``(n, d)`` for a method that is calibrated on some; those it takes of them are kept. They are
        in the units that nodes observe in: where they standardize, these rows are too, by themselves.
    labels
        Their labels ``(n,)``, if those are shared too: landmarks are then ``"labelled"``.
    """

    name: str
    inputs: int
    method: Gossip
    seed: int
    topology: Topology
    members: tuple[Member, ...]
    timing: Timing = Timing()  # noqa: RUF009 - it is frozen
    tls: Tls | None = None
    access: Access = Access.open()  # noqa: RUF009 - it is frozen
    checkpoint: Checkpoint | None = None
    standardize: bool = False
    calibration: Inputs | None = field(default=None, repr=False, compare=False)
    labels: Inputs | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_word("name", self.name)
        whole("inputs", self.inputs)
        checks.distinct(self.members, _protocol(self.tls))
        checks.identified(self.access, self.tls)
        checks.paced(checks.runnable(self.method), self.timing)
        checks.connected(self.topology.graph, self.ids)
        checks.nonnegative(self.topology, self.ids)
        checks.sized(self.method, self.inputs)
        rows = checks.calibrated(self.method, self.calibration, self.inputs, self.seed, self.standardize)
        method, labels = checks.labelled(self.method, self.calibration, self.labels, self.seed)
        for name, value in {"calibration": rows, "labels": labels, "method": method}.items():
            object.__setattr__(self, name, value)

    @property
    def ids(self) -> list[str]:
        """The members' ids, in order."""
        return [member.id for member in self.members]

    def index(self, id: str) -> int:
        """Return a node's place among the members, which is its number in the simulator."""
        if id not in (ids := self.ids):
            raise InputError(unknown("node", id, ids))
        return ids.index(id)

    def neighbors(self, id: str) -> dict[str, float]:
        """Return the gossip weight w_ij of each neighbor, in the order of the members."""
        own, ids = self.index(id), self.ids
        edges = self.topology.graph.edges
        mine = (edges == own).any(axis=1)
        peers = (edges[mine].sum(axis=1) - own).tolist()
        weights = dict(zip(peers, self.topology.weights[mine].tolist(), strict=True))
        return {ids[k]: weights[k] for k in sorted(weights)}

    def role(self, id: str) -> Role:
        """Return what one node is to the network."""
        return Role(
            network=self.name,
            id=id,
            index=self.index(id),
            method=for_inputs(self.method, self.inputs).on(self.topology),
            inputs=self.inputs,
            seed=self.seed,
            neighbors=self.neighbors(id),
            timing=self.timing,
            standardize=self.standardize,
            calibration=self.calibration,
            targets=None if self.labels is None else Labels(self.method.objective).encode(self.labels),
            settings=self._digest(),
        )

    def _digest(self) -> bytes:
        """Return a digest of what is learned with, and of the timing: equal where files are.

        Without the graph: a node that is added or removed elsewhere is no business of a link's, whose weight both its
        ends tell each other.
        """
        if any(kernel.spectrum is not None for kernel in self.method.bank.kernels):
            return bytes(DIGEST_BYTES)  # a spectrum of one's own has no text
        text = json.dumps([as_table(self.method), self.seed, asdict(self.timing)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()

    def served_at(self, id: str, metrics: str | None) -> "NetworkConfig":
        """Return the network with another address for the metrics of one node; with None it serves none."""
        own = self.index(id)
        members = tuple(replace(one, metrics=metrics) if k == own else one for k, one in enumerate(self.members))
        checks.distinct(members, _protocol(self.tls))
        network = copy.copy(self)  # what was calibrated stays as it is
        object.__setattr__(network, "members", members)
        return network

    def endpoints(self, id: str) -> list[str]:
        """Return where a node connects to: the endpoints of its neighbors that are listed before it.

        So a link is one connection. The node that is listed later opens it, and opens it again when either end has been
        away.
        """
        own = self.index(id)
        return [self.members[k].listen for k in map(self.index, self.neighbors(id)) if k < own]


LEARNED = ("topology", "weights", "seed", "standardize", "method")
"""The keys of a spec that say what real nodes do; the others are for a simulation alone."""


@dataclass(frozen=True, kw_only=True)
class FileKeys:
    """The keys of a network's file.

    Attributes
    ----------
    name
        The network's name: letters, digits, ``-`` and ``_``. It keeps networks apart that share a wire.
    inputs
        How many numbers an observation has, d.
    nodes
        The nodes, a table ``[[nodes]]`` for each. Their order matters: of two neighbors, the node that is listed later
        opens the connection.
    learning
        What is learned and how: a table, or the path of a simulation's spec.
    links
        Which nodes talk to each other, as pairs of ids: ``[["a", "b"], ["b", "c"]]``. It takes the place of
        ``learning.topology``. The links must connect all nodes.
    timing
        When a round begins, and how long nodes wait for each other.
    tls
        Certificates. Every ``listen`` then begins with ``tls/``. Without the table links are open to read.
    access
        Who may ask a node for what. Without the table everyone may who reaches its port.
    checkpoint
        Where nodes keep their state. Without the table a node that starts again begins anew.
    calibration
        The inputs that all nodes share, for a method that needs some.
    """

    name: str
    inputs: int
    nodes: list[Table]
    learning: Any
    links: list[list[str]] | None = None
    timing: Timing = Timing()  # noqa: RUF009 - it is frozen
    tls: Tls | None = None
    access: Access = Access.open()  # noqa: RUF009 - it is frozen
    checkpoint: Checkpoint | None = None
    calibration: Calibration | None = None


def load(path: Path | str) -> NetworkConfig:
    """Return the network that a TOML file describes."""
    path = Path(path)
    table = _read(path, f"{path} is not a file; a node needs the file of its network; write one: omkl node init")
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused
            return parse(table, path.parent)
    except InputError:
        raise
    except (ArithmeticError, MemoryError, RecursionError, ValueError) as error:  # of numbers that nothing is made for
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path} describes no network that can be run ({why}); look for absurd numbers") from None


def parse(table: Table, folder: Path) -> NetworkConfig:
    """Return the network that a table describes; the files it names are looked for in the folder."""
    file = config.fill(FileKeys, table, "")
    members = tuple(config.fill(Member, one, f"nodes.{k}") for k, one in enumerate(file.nodes))
    checks.distinct(members, _protocol(file.tls))  # links go by ids
    learning, place = _learning(file.learning, folder)
    try:
        spec = config.deployed(learning, len(members))
    except InputError as error:
        raise InputError(f"{place}{error}") from None
    checks.agrees(spec, learning, len(members), file.inputs)
    rows, labels = (None, None) if file.calibration is None else file.calibration.read(folder)
    return NetworkConfig(
        name=file.name,
        inputs=file.inputs,
        method=checks.runnable(spec.method),
        seed=spec.seed,
        topology=_topology(spec, learning, file.links, [member.id for member in members]),
        members=members,
        timing=file.timing,
        tls=file.tls and replace(file.tls, **{name: folder / path for name, path in vars(file.tls).items()}),
        access=file.access,
        checkpoint=file.checkpoint and replace(file.checkpoint, folder=folder / file.checkpoint.folder),
        standardize=bool(spec.standardize),
        calibration=rows,
        labels=labels,
    )


def _protocol(tls: Tls | None) -> str:
    return "tls" if tls else "tcp"


def _read(path: Path, missing: str) -> Table:
    if not path.is_file():
        raise InputError(missing)
    return config.load(path)


def _learning(value: Any, folder: Path) -> tuple[Table, str]:
    """Return the table of a spec, given in place or as a file, and what an error puts before its keys."""
    if isinstance(value, str):
        missing = (
            f"learning: {folder / value} is not a file; it must be a simulation's spec; copy it there, or mend the path"
        )
        return _read(folder / value, missing), f"learning: {value}: "
    if isinstance(value, dict):
        beside = folder / "network.toml"
        given = {"topology": config.graph_beside(beside, value["topology"])} if "topology" in value else {}
        return value | given, "learning."
    raise InputError(f"learning: {value!r} given; it must be a table or the path of a spec; write [learning]")


def _topology(spec: Experiment, learning: Table, links: list[list[str]] | None, ids: list[str]) -> Topology:
    if isinstance(spec.topology, Schedule):
        raise InputError("learning.topology: graphs in turn; nodes keep the links they have; name one graph")
    if links is not None and "topology" in learning:
        raise InputError("links: given beside learning.topology; a network has one graph; leave one of them out")
    given = spec.topology if links is None else Graph(len(ids), _edges(links, ids))
    with config.at("learning.topology" if links is None else "links"):
        nodes = len(ids) if isinstance(given, str) else None
        names = ids if topologies.names_of(given) else None
        # First without the rule of weights: some refuse a graph in parts too, by numbers.
        checks.connected(topologies.build(given, nodes, connected=False, names=names).graph, ids)
        return topologies.build(given, nodes, spec.weights, names=names)


def _edges(links: list[list[str]], ids: list[str]) -> Any:
    first: dict[frozenset[str], int] = {}
    for k, link in enumerate(links):
        if len(link) != 2 or link[0] == link[1]:
            raise InputError(f'links.{k}: {link} given; a link joins two different nodes; write ["a", "b"]')
        for end in link:
            if end not in ids:
                raise InputError(f"links.{k}: {unknown('node', end, ids)}")
        if (same := first.setdefault(frozenset(link), k)) != k:
            raise InputError(f"links.{k}: {link} is links.{same} again; a link goes both ways; leave it out")
    return [[ids.index(end) for end in link] for link in links]
