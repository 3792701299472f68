"""An experiment: all that makes the result of a simulation, and the name that its method goes by."""

from dataclasses import dataclass, is_dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from omkl.data import Partition, Table
from omkl.data.tables import Roles, opened
from omkl.errors import InputError, extra, pick, whole
from omkl.methods import PRESETS, Method, named
from omkl.settings import brief, changes, settings
from omkl.topology import WEIGHTS, Faults

if TYPE_CHECKING:
    from omkl.simulator import Result

MOST = 500  # characters of a repr


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Experiment(Roles):
    """A network that learns a stream: everything that makes the result.

    Attributes
    ----------
    data
        The data to learn, a file such as ``rows.csv`` or a data set by name, such as ``banana``. ``omkl data`` lists
        the data sets. A file is CSV or Parquet, and ``target`` says what to predict; in Python it may be a data frame.
        Or arrays ``(X, y)``: with X ``(n, d)`` the rows are dealt out to the nodes, and X ``(T, J, d)`` with y
        ``(T, J)`` is a stream.
    topology
        Which nodes hear each other, by a file such as ``edges.csv`` or by name; files are those that
        ``omkl.topology.read`` knows. Or a graph of ``omkl.topology``, a networkx graph, an adjacency or a gossip
        matrix; or ``omkl.topology.Schedule`` of several, which take turns. None is the data set's own graph where it
        has one, and a path otherwise. Where both data and graph name the nodes, they are matched by name.
    nodes
        Number of nodes, J; leave it out if data or topology say it.
    method
        What nodes learn with: ``Gossip(...)``, ``Local(...)``, ... or the name of one of these with its defaults, or of
        a preset, ``"paper"`` or ``"frugal"``; None is ``recommended()``. A method without a loss takes the one that
        suits a data set known by name.
    weights
        Rule for the gossip weights of a graph: how much each neighbor counts.
    faults
        Links that fail and nodes that sleep, drawn anew in every round: ``Faults(links=0.1, nodes=0.05)``.
    seeds
        Number of runs on the same rows in the same order, one for each seed from ``seed`` on. Each has its own features
        and dither, and calibrates on its own rows of the stream where the method does. A run depends on its own seed
        alone.
    seed
        The first seed.
    shuffle
        Seed of the order in which a table is dealt out, the same for all runs; change it to see what the order does.
        None keeps the order of the rows. Rows of a table with ``node`` or ``time``, and those of a stream, keep their
        order, so a seed for them is refused.
    partition
        Which rows of a table each node sees: a name, or ``omkl.data.Dirichlet(alpha=0.1)``, say. None deals the rows
        out like cards.
    rounds
        Number of rounds to take from the stream; None takes all that it has.
    record_every
        Record one round of this many; 1 records every round.
    pooled
        Score every node's model on all nodes' samples of a round too; this is ``pooled_loss``.
    standardize
        Scale every input to mean 0 and deviation 1 by the running moments of its node, as ``omkl.scaling`` does. None
        does so for files and data frames, whose targets of numbers are scaled too, and not for arrays. Use it for raw
        values in any units, at nodes that see similar data. If nodes see different data, scale the inputs yourself, in
        the same way for all nodes.
    devices
        Number of JAX devices that share the work. The result is that of one device, up to rounding;
        ``config["devices"]`` counts the links between devices. After ``jax.distributed.initialize`` devices are those
        of all processes, which must make the same call.
    shard
        What is spread over devices: ``"seeds"``, or the ``"nodes"`` of one network, which exchange their boundary; None
        spreads seeds where every device gets one.

    Examples
    --------
    >>> import omkl
    >>> omkl.Experiment(data="banana", topology="ring", nodes=20, method="paper")
    Experiment(data=banana, topology=ring, nodes=20, method=paper)
    """

    data: Any
    topology: Any = None
    nodes: int | None = None
    method: Any = None  # of which a Method is made
    weights: str = "metropolis"
    faults: Faults | None = None
    seeds: int = 1
    seed: int = 0
    shuffle: int | None = 0
    partition: Partition | str | None = None
    rounds: int | None = None
    record_every: int = 1
    pooled: bool = False
    standardize: bool | None = None
    devices: int = 1
    shard: Literal["nodes", "seeds"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", named(self.method))
        object.__setattr__(self, "data", opened(self.data, self))
        for name in settings(Roles):  # the table knows them from here on
            object.__setattr__(self, name, None)
        if self.standardize is None:
            object.__setattr__(self, "standardize", isinstance(self.data, Table))
        pick("weights", self.weights, WEIGHTS)
        for name, least in (("nodes", 1), ("rounds", 1), ("shuffle", 0)):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), least)
        for name in ("seeds", "record_every", "devices"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if whole("seed", self.seed, -(2**63)) + self.seeds > 2**63:
            raise InputError(f"seed is {self.seed}; seeds are 64-bit integers; pass a smaller one")

    def run(self, progress: Any = None, watch: Any = None) -> "Result":
        """Return the result of the simulation; ``progress`` and ``watch`` are those of ``omkl.simulate``."""
        with extra("sim", "jax"):
            from omkl.simulator.simulation import run_cases  # here alone: all else needs no JAX
        (result,) = run_cases(self, {"": (self.method, self.topology)}, progress, watch).values()
        return result

    def __repr__(self) -> str:
        return f"Experiment({self._text()})"

    def _repr_html_(self) -> str:
        return f"<b>Experiment</b> {escape(self._text(), quote=False)}"

    def _text(self) -> str:
        """Return the method, and what else differs from the defaults."""
        given = {name: one.default for name, one in settings(self).items()}
        plain = {name: one.default for name, one in settings(Experiment).items()}
        plain["standardize"] = isinstance(self.data, Table)
        said = {
            name: repr(value) if isinstance(value, Table) else brief(value)
            for name, value in given.items()
            if not _same(value, plain[name])
        }
        text = ", ".join(f"{name}={value}" for name, value in (said | {"method": label(self.method)}).items())
        return text if len(text) <= MOST else f"{text[:MOST]} ..."


def _same(value: Any, other: Any) -> bool:
    return value is other or (isinstance(value, str | int) and value == other)  # arrays do not compare to one answer


def label(method: Method) -> str:
    """Return what a method is called: the preset nearest to it and what was changed, ``recommended, gamma=0.2``."""
    bases: dict[str, Any] = {name: make() for name, make in PRESETS.items()}
    bases = {name: base for name, base in bases.items() if type(method) is type(base)}
    bases |= {method.name: type(method)} if is_dataclass(method) else {}
    named_by = {name: list(changes(method, base)) for name, base in bases.items()}
    name = min(named_by, key=lambda one: len(named_by[one]), default=method.name)
    return ", ".join([name, *named_by.get(name, ())])
