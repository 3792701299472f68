"""The learner of rows."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from omkl import algorithm
from omkl.blas import one_thread
from omkl.errors import DivergedError, InputError, whole
from omkl.methods import Gossip, Local, Method, Neighbors, Round, eager
from omkl.online.calibrating import Calibrated, calibrate, described, table
from omkl.online.playing import MANY, Row, compiled_loops
from omkl.online.tasks import Classification, Task
from omkl.online.tracking import Tracking
from omkl.scaling import Floats
from omkl.storage import mapped
from omkl.topology import Topology

BLOCK = 256  # rows at once: features before the basis are many


class Online:
    """A learner of rows.

    Parameters
    ----------
    task
        What the targets are.
    method
        How it learns; its loss is the task's, and its basis shrinks with the rows there are.
    seed
        Of the features, and of dither.
    warmup
        Rows that are kept.
    topology
        Who talks to whom; None is one node.

    Attributes
    ----------
    seen
        Rows so far.
    """

    def __init__(
        self, task: Task, method: Method, seed: int = 0, warmup: int = 512, topology: Topology | None = None
    ) -> None:
        if topology is not None:
            if not isinstance(method, Local | Gossip):
                raise InputError(f"{method.name} on a network; nodes here need not have a sample each; use Gossip")
            method.check(topology)
            method = method.on(topology) if isinstance(method, Gossip) else method
        self.task, self.method, self.seed = task, method, seed
        self.warmup = whole("warmup", warmup, 2)
        self.nodes = 1 if topology is None else topology.nodes
        self.network = _network(topology)
        self.seen = 0
        self.kept: list[Row] | None = []
        self.open: dict[int, Row] = {}
        self.rounds = 0
        self.made: Calibrated | None = None
        self.state: Any = None
        self._learned = 0
        self._ahead: Any = None
        self._player: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_player": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.compile()  # loops need not be there where it is loaded

    def learn(self, row: Row) -> None:
        """Learn a row, or keep it."""
        self.learn_many([row])

    def learn_many(self, rows: Sequence[Row]) -> None:
        """Learn rows in order: to the bit what they would do one by one, and sooner."""
        if not isinstance(self.method, Local | Gossip | Tracking) and (heavy := [r for r in rows if r.weight != 1]):
            rule = f"a row of weight {heavy[0].weight} for {self.method.name}, which has none"
            raise InputError(f"{rule}; leave weights out")
        if self.kept is not None:
            some, rows = rows[: self.warmup - len(self.kept)], rows[self.warmup - len(self.kept) :]
            self.kept += some
            self.seen += len(some)
            if len(self.kept) < self.warmup:
                return
            self._catch_up()
            self._complete()
        self.seen += len(rows)
        self._take(rows)

    def grow(self, classes: int) -> None:
        """Know more classes: from the start while rows are kept, later with outputs that begin at zero."""
        task = Classification(classes)
        before, self.task = self.task.outputs, task
        if self.made is None or before == task.outputs:
            return
        self._ahead = None
        if self.kept is not None:
            self.made = None  # what columns are worth is found anew
            return
        if not isinstance(self.made.method, Local | Tracking):
            raise InputError(f"{classes} classes; {self.method.name} must know them all early; show some rows of each")
        self.made = self.knowing(self.made)
        fresh = self.made.method.init(np, (self.nodes,), task.outputs, self.made.features.spectrum)
        self.state = grown(self.state, fresh)
        self.compile()

    def knowing(self, made: Calibrated) -> Calibrated:
        """Return a calibration for the loss of the task as it is now."""
        return made._replace(method=made.method.replace(loss=self.task.loss))

    def outputs(self, X: Floats, node: int | None = None) -> Floats:
        """Return the outputs ``(n, C)`` for rows ``(n, d)``, in the units of the targets.

        By the models of one node, or the mean of all nodes' models, under the mean of their log weights.
        """
        self._catch_up()
        center, scale = self.settled().targets
        with one_thread() if len(X) > 1 and not self._is_fast else nullcontext():
            found = [self._outputs(X[k : k + BLOCK], node) for k in range(0, len(X), BLOCK)]
        return np.asarray(self._finite(np.concatenate(found)) * scale + center)

    @property
    def _is_fast(self) -> bool:
        """Whether compiled loops predict."""
        return self._player is not None and self.nodes == 1

    def _outputs(self, X: Floats, node: int | None) -> Floats:
        """Return the outputs for rows of a block, as they are learned."""
        if self._is_fast:
            return self._player.outputs(self.state, self._player.features(X))  # type: ignore[no-any-return]
        z = described(X, self.settled(), np.float64)
        return np.asarray(algorithm.predict(*self.models(node), z).output)

    def models(self, node: int | None = None) -> tuple[Floats, Floats]:
        """Return theta ``(P, C, n)`` and log weights ``(P,)`` of one node, or their means."""
        self._catch_up()
        made = self.settled()
        if self.open and self._ahead is None:
            self._ahead = self._round(self.open)
        theta, log_weights = made.method.models(self._ahead if self.open else self.state)
        self._finite(theta)
        self._finite(log_weights)
        if node is None:
            return theta.mean(axis=0, dtype=np.float64), log_weights.mean(axis=0, dtype=np.float64)
        return theta[node].astype(np.float64), log_weights[node].astype(np.float64)

    def _finite(self, numbers: Any) -> Any:
        if not np.isfinite(numbers).all():
            raise DivergedError(
                f"a model is not finite after {self.seen} rows; use a smaller rate, or the default learner"
            )
        return numbers

    def settled(self) -> Calibrated:
        """Return what the rows were calibrated to; refuse where there are none."""
        if self.made is None:
            raise InputError("no row has been learned; predictions need one at least; learn some rows first")
        return self.made

    def _catch_up(self) -> None:
        """Bring the state to all rows that are kept."""
        if not self.kept:
            return
        count = len(self.kept)
        rows = count if count == self.warmup else 1 << (count.bit_length() - 1)
        if self.made is None or self.made.rows != rows:
            with one_thread():
                self.made = self._calibrated(self.kept[:rows])
            self._start(self.made)
        self._take(self.kept[self._learned :])
        self._learned = count

    def _start(self, made: Calibrated) -> None:
        """Begin with no row learned."""
        self.state = made.method.init(np, (self.nodes,), self.task.outputs, made.features.spectrum)
        self.open, self.rounds, self._learned = {}, 0, 0
        self.compile()

    def _complete(self) -> None:
        """Drop the rows that were kept."""
        self.kept = None

    def compile(self) -> None:
        """Take compiled loops for what has been calibrated, where there are such, and rows enough for their loading."""
        self._player = None if self.made is None else self._playing(self.made)

    def _playing(self, made: Calibrated) -> Any:
        loops = compiled_loops(made.method) if made.rows >= min(MANY, self.warmup) else None
        return None if loops is None else loops.Rounds(made, self.task.outputs, self.network, self.seed)

    def _take(self, rows: Sequence[Row]) -> None:
        """Learn rows in order."""
        with one_thread() if len(rows) > 1 else nullcontext():
            for row in rows:
                self._ahead = None
                if row.node in self.open:
                    self._close()
                self.open[row.node] = row
                if len(self.open) == self.nodes:
                    self._close()

    def _close(self) -> None:
        self.state = self._round(self.open)
        self.open = {}
        self.rounds += 1

    def _round(self, rows: dict[int, Row]) -> Any:
        """Return the state after a round in which these nodes have samples."""
        made = self.settled()
        method, outputs = made.method, self.task.outputs
        if self._player is not None and len(rows) == self.nodes and all(row.weight == 1 for row in rows.values()):
            every = [rows[node] for node in range(self.nodes)]
            z = self._player.features(table([row.x for row in every]))
            y = np.stack([self.task.target(row.y, made.targets) for row in every])
            return self._player.learn(self.state, z, y, self.rounds)
        z = np.zeros((self.nodes, method.bank.members, method.bank.width), np.float32)
        y, weight = np.zeros((self.nodes, outputs), np.float32), np.ones(self.nodes, np.float32)
        seen = np.zeros(self.nodes, bool)
        for node, row in rows.items():
            seen[node] = True
            z[node] = described(row.x[None], made)[0]
            y[node] = self.task.target(row.y, made.targets)
            weight[node] = row.weight
        dither = eager.dither(method, self.nodes, outputs, self.seed)
        sample = Round(z, y, dither(self.rounds), self.rounds, None if (weight == 1).all() else weight)
        with np.errstate(over="ignore", invalid="ignore"):  # a model may diverge: that is told when it is asked
            return eager.advance(method, self.state, sample, self.network, dither, seen)[0]

    def _calibrated(self, rows: list[Row]) -> Calibrated:
        X, y = table([row.x for row in rows]), np.stack([row.y for row in rows])
        units = self.task.units(y)
        learned = self.task.target(y, units)
        method: Any = self.method.replace(loss=self.task.loss)
        return calibrate(method, X, units, learned, self.seed)


def _network(topology: Topology | None) -> Neighbors:
    if topology is None:
        return Neighbors(np.zeros((1, 0), np.int32), np.zeros((1, 0), np.float32))
    index, weights = topology.neighbors()
    return Neighbors(index, weights.astype(np.float32))


def grown(before: Any, fresh: Any) -> Any:
    """Return a state of more outputs: of two classes, f becomes -f/2 and f/2 of the first two, and others are zero.

    Of what a learner remembers by output, both of the two have what the one had.
    """
    one = before.theta.shape[-2] == 1
    halves = np.array([[-0.5], [0.5]], np.float32) if one else np.float32(1)

    def put(old: Any, new: Any) -> Any:
        if old.shape == new.shape:
            return old
        made = new.copy()
        outputs = next(axis for axis, (few, more) in enumerate(zip(old.shape, new.shape, strict=True)) if few != more)
        made[(*(slice(None),) * outputs, slice(2 if one else old.shape[outputs]))] = old
        return made

    made = {}
    for models, memory in (("theta", "memory"), ("line", "line_memory")):
        if hasattr(before, models):
            made[models] = put(halves * getattr(before, models), getattr(fresh, models))
            made[memory] = mapped(put, getattr(before, memory), getattr(fresh, memory))
    return before._replace(**made)
