"""Streams: who sees which row, and when. A stream holds one row for every round and node."""

import logging
import warnings
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data.files import Floats
from omkl.data.lookup import Data, known, load
from omkl.data.partition import PARTITIONS, Partition, permutation, scheduled
from omkl.data.tables import Table, node_names, rows_left_out
from omkl.display import counted
from omkl.errors import InputError, pick, whole
from omkl.losses import Loss
from omkl.notes import note

FEW = 0.03  # of the rows, which may be left out without a word

logger = logging.getLogger(__name__)


class Stream(NamedTuple):
    """Rows ``X (T, J, d)`` and labels ``y (T, J)``, or ``(T, J, C)``: round t brings node j the row ``X[t, j]``."""

    X: Floats
    y: Floats


Source: TypeAlias = str | Data | Table | Stream | tuple[npt.ArrayLike, npt.ArrayLike]
"""A name, a table of ``read_table``, arrays ``X (n, d), y (n,)``, or a stream ``X (T, J, d), y (T, J)``."""


def as_stream(
    data: Source,
    nodes: int | None = None,
    shuffle: int | None = 0,
    dtype: npt.DTypeLike = np.float32,
    partition: Partition | str | None = None,
) -> tuple[Stream, Loss | str | None]:
    """Return the stream of any source, and the loss that suits it where the source says so.

    Parameters
    ----------
    data
        A name, a table or a stream. A stream's own order is kept.
    nodes
        Number of nodes a table is dealt to; a stream has its own, which this must equal where given.
    shuffle
        Seed of the order in which a table is dealt; ``None`` keeps its order. Other seeds than 0 are refused where rows
        are not dealt.
    dtype
        The precision of X: float64 for inputs that are yet to be standardized.
    partition
        Which rows of a table a node sees; None deals them out like cards.
    """
    source = data
    if isinstance(data, str):
        data = load(data)
    loss = data.loss if isinstance(data, Data | Table) else None
    if isinstance(data, Table):
        X, y, node = data
        if node is None:
            data = X, y
        elif data.encoding is None:
            data = by_node(X, y, node, dtype)
        else:  # read_table has said which rows are left out
            *_, data = _split(X, y, node, dtype)
    if loss is None and not (isinstance(data, tuple | list) and len(data) == 2):
        raise InputError(f"data is a {type(data).__name__}; it must be a name or a pair (X, y); pass data=(X, y)")
    X, y = _array(data[0], "X"), _array(data[1], "y")
    shuffle = _order(source, shuffle)
    if X.ndim == 3:
        if partition is not None:
            raise InputError("partition of a stream; it says already who sees what; leave partition out")
        return _stream(X, y, nodes, dtype), loss
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}; it must be (n, d), or (T, J, d) for a stream; reshape it")
    if nodes is None:
        raise InputError("nodes is not given; a table is dealt to a number of nodes; pass nodes=20 (--nodes 20)")
    return deal(X, y, nodes, shuffle, dtype, partition), loss


def is_dealt(data: Source) -> bool:
    """Return whether rows are dealt out in an order that a seed draws; others keep theirs."""
    if isinstance(data, str):
        return known(data).nodes is None
    if isinstance(data, Table):
        return data.node is None and not data.is_ordered
    return bool(np.ndim(data[0]) == 2)


def _order(data: Source, shuffle: int | None) -> int | None:
    """Return the seed of the order of the rows; None where they keep theirs, for which another is refused."""
    if is_dealt(data):
        return shuffle
    if shuffle:
        raise InputError(
            f"shuffle is {shuffle}; these rows keep the order that they have, at every node or in time, so it would "
            "change nothing; leave shuffle out"
        )
    return None


def deal(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    nodes: int,
    shuffle: int | None = 0,
    dtype: npt.DTypeLike = np.float32,
    partition: Partition | str | None = None,
) -> Stream:
    """Return a table dealt row by row to the nodes, like cards, or as a partition says.

    The rows are permuted by the seed ``shuffle`` (``None`` keeps their order); row ``t J + j`` goes to node j at round
    t, and the last ``n mod J`` rows to nobody. Under a partition, an object or its name, ``shuffle`` orders the rows of
    every node.

    >>> deal([[0], [1], [2], [3], [4]], [0, 1, 2, 3, 4], nodes=2, shuffle=None).y
    array([[0., 1.],
           [2., 3.]], dtype=float32)
    """
    X, y = _table(X, y, dtype)
    if isinstance(nodes, bool) or not isinstance(nodes, int | np.integer) or not 1 <= nodes <= len(X):
        raise InputError(f"nodes is {nodes}; it must be a whole number from 1 to the {len(X)} rows; change nodes")
    if shuffle is not None:
        whole("shuffle", shuffle, 0)
    if partition is not None:
        split = pick("partition", partition, PARTITIONS)() if isinstance(partition, str) else partition
        rows = scheduled(split.rows(X, y, nodes), shuffle)
    else:
        order = np.arange(len(X)) if shuffle is None else permutation(len(X), shuffle)
        rounds = len(X) // nodes
        rows = order[: rounds * nodes].reshape(rounds, nodes)
    _tell_unused(rows, len(X))
    return Stream(X[rows], y[rows])


def _tell_unused(rows: npt.NDArray[Any], count: int) -> None:
    """Say how many of the rows are in no round, if that is more than a few, or if there is one round alone."""
    rounds, nodes = rows.shape
    unused = count - len(np.unique(rows))
    left = f"{unused:,} of {count:,} rows are left out" if unused > FEW * count else ""
    alone = "nothing that is learned in the only round is scored" if rounds == 1 else ""
    if told := ", and ".join(filter(None, (left, alone))):
        note(
            logger, f"every node learns one row a round, {counted(nodes, 'node')} in {counted(rounds, 'round')}: {told}"
        )


def first_rounds(stream: Stream, rounds: int | None) -> Stream:
    """Return the first rounds of a stream; all of them where None is given."""
    if rounds is not None and whole("rounds", rounds) > len(stream.X):
        raise InputError(f"rounds is {rounds}; the stream has {len(stream.X)}; take 1 to {len(stream.X)} of them")
    return Stream(stream.X[:rounds], stream.y[:rounds])


def by_node(X: npt.ArrayLike, y: npt.ArrayLike, node: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> Stream:
    """Return a table split by a column that says who sees a row; each node keeps its order.

    Nodes are numbered in the sorted order of the column's values, numbers by their size. The node with the fewest rows
    sets the number of rounds.
    """
    known, which, stream = _split(X, y, node, dtype)
    for told in rows_left_out(known, which):
        if 2 * stream.X[..., 0].size < len(which):
            warnings.warn(told, stacklevel=2)
        else:
            note(logger, told)
    return stream


def _split(
    X: npt.ArrayLike, y: npt.ArrayLike, node: npt.ArrayLike, dtype: npt.DTypeLike
) -> tuple[list[str], npt.NDArray[np.int64], Stream]:
    """Return the names of the nodes, which of them each row is of, and the stream of ``by_node``."""
    X, y = _table(X, y, dtype)
    names = np.asarray(node)
    if names.shape != (len(X),):
        raise InputError(f"node has shape {names.shape} and X {X.shape}; node must be {(len(X),)}; one value a row")
    missing = [i for i, name in enumerate(names.tolist()) if name in (None, "") or name != name]
    if missing:
        raise InputError(f"node is missing at row {missing[0]}; every row must belong to a node; drop or fill it")
    known, which = node_names(names)
    counts = np.bincount(which)
    order = np.argsort(which, kind="stable")
    rows = order[np.arange(counts.min())[:, None] + np.cumsum(counts) - counts]
    return known, which, Stream(X[rows], y[rows])


def numbers(values: npt.ArrayLike, name: str, dtype: npt.DTypeLike = np.float32) -> Floats:
    """Return values in a precision, or refuse what is not a finite number in float32."""
    given = _array(values, name)
    if given.size == 0:
        raise InputError(f"{name} is empty, of shape {given.shape}; it must hold at least one row; check its source")
    with np.errstate(over="ignore"):
        single = given.astype(np.float32, copy=False)
    good = np.isfinite(single)
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        fits = "fit float32, below 3.4e38; scale" if np.isfinite(given[where]) else "be finite; drop or fill"
        raise InputError(f"{name} holds {given[where]} at index {where}; values must {fits} them")
    return single if dtype == np.float32 else given.astype(dtype, copy=False)


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        given = np.asarray(values)
        if given.dtype.kind == "O":
            given = given.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name} is not an array of numbers; it must be rectangular and numeric; encode it first"
        ) from None
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} has type {given.dtype}; it must hold real numbers; encode it first")
    return given


def _stream(X: npt.ArrayLike, y: npt.ArrayLike, nodes: int | None, dtype: npt.DTypeLike) -> Stream:
    X, y = numbers(X, "X", dtype), numbers(y, "y")
    if y.shape[:2] != X.shape[:2] or y.ndim > 3:
        raise InputError(f"y has shape {y.shape} and X {X.shape}; a stream's y must be {X.shape[:2]}; reshape it")
    if nodes not in (None, X.shape[1]):
        belong = f"these rows belong to {counted(X.shape[1], 'node')}"
        raise InputError(f"nodes is {nodes}; {belong}; drop --nodes (nodes=)")
    return Stream(X, y)


def _table(X: npt.ArrayLike, y: npt.ArrayLike, dtype: npt.DTypeLike) -> tuple[Floats, Floats]:
    X, y = numbers(X, "X", dtype), numbers(y, "y")
    if X.ndim != 2:
        raise InputError(f"X has shape {X.shape}; a table must be (n, d); reshape it, X[:, None] for one feature")
    if y.ndim not in (1, 2) or len(y) != len(X):
        raise InputError(f"y has shape {y.shape} and X {X.shape}; y must be ({len(X)},), or ({len(X)}, C); one a row")
    return X, y
