"""Graphs from files: lists of links, adjacency matrices and GraphML, with the names of their nodes.

A list of links has a line for each: two names, and perhaps how much the link counts, between commas, semicolons, tabs
or spaces. A table that is as wide as it is long is a matrix.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omkl import storage
from omkl.display import counted
from omkl.errors import InputError, extra
from omkl.topology.graphs import Graph, from_adjacency, from_networkx, is_adjacency, square
from omkl.topology.weights import Topology, from_gossip

TEXT = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
GRAPHML = ".graphml"
COMMENT = ("#", "%")
HEADERS = {
    ("source", "target"), ("from", "to"), ("src", "dst"), ("start", "end"), ("node1", "node2"), ("u", "v"), ("i", "j"),
}  # fmt: skip
WEIGHTS = ("weight", "weights", "strength", "w")
ATTRIBUTES = re.compile(r"\s*\{(.*)\}$")  # that networkx writes behind a link
LEAST = 4  # rows of a matrix that nobody takes for a list of links


class Row(NamedTuple):
    """A line of a file: where it stands, and its cells."""

    line: int
    cells: list[str]


def is_file(topology: Any) -> bool:
    """Return whether this is the path of a file, and no name of a graph."""
    return isinstance(topology, PathLike) or (isinstance(topology, str) and Path(topology).suffix != "")


def read(path: str | PathLike[str]) -> Graph | Topology:
    """Return the graph of a file; a gossip matrix keeps its weights.

    The file ends in ``.graphml``, or in ``.csv``, ``.tsv``, ``.txt``, ``.edges`` or ``.edgelist``. Nodes keep the
    names that they have there; those of a matrix without are numbers.
    """
    path = Path(path)
    if path.suffix.lower() not in (*TEXT, GRAPHML):
        known = ", ".join((*TEXT, GRAPHML))
        raise InputError(f"{path} ends in {path.suffix!r}; a graph is read from {known}; convert it, or rename it")
    if not path.is_file():
        raise InputError(f"{path} is not a file; a graph is a name such as 'ring', or a file of links; check the path")
    try:
        return _graphml(path) if path.suffix.lower() == GRAPHML else _text(path)
    except InputError as error:
        told = str(error)
        raise InputError(told if told.startswith(str(path)) else f"{path}: {told}") from None


def _text(path: Path) -> Graph | Topology:
    with storage.refusing(f"{path} cannot be read", "it must be UTF-8 text", OSError):
        text = path.read_text(encoding="utf-8-sig")
    try:
        rows = _rows(text)
    except csv.Error as error:
        raise InputError(f"it cannot be cut into cells ({error}); write two names a line, as a,b") from None
    return _matrix(rows, path.name) or _links(rows, path.name)


def _graphml(path: Path) -> Graph:
    with extra("sim", "networkx"):
        import networkx as nx
    remedy = "write it by networkx.write_graphml"
    with storage.refusing(f"{path} is no GraphML", remedy, OSError, SyntaxError, nx.NetworkXError):
        graph = nx.read_graphml(path)
    if graph.is_directed():
        raise InputError(
            "a directed graph; gossip goes both ways over a link; write it undirected: "
            "networkx.write_graphml(graph.to_undirected(), ...)"
        )
    return from_networkx(nx.relabel_nodes(graph, _labels(graph)), path.name)


def _labels(graph: Any) -> dict[Any, str]:
    """Return what the nodes are called: by their label or name where all have one and no two are alike."""
    for key in ("label", "name"):
        found = {node: str(label) for node, label in graph.nodes(data=key) if label not in (None, "")}
        if len(set(found.values())) == len(graph):
            return found
    return {}


def _rows(text: str) -> list[Row]:
    """Return the lines of a text that hold something, cut at what is between cells."""
    lines = [(k, line.strip()) for k, line in enumerate(text.splitlines(), start=1)]
    lines = [(k, line) for k, line in lines if line and not line.startswith(COMMENT)]
    if not lines:
        raise InputError("it has no line; a graph has links; write one a line, as a,b")
    between = next((mark for mark in "\t;," if mark in lines[0][1]), None)
    return [Row(k, _cells(line, between)) for k, line in lines]


def _cells(line: str, between: str | None) -> list[str]:
    attributes = ATTRIBUTES.search(line)
    if attributes:
        line = line[: attributes.start()]
    cells = line.split() if between is None else [cell.strip() for cell in next(csv.reader([line], delimiter=between))]
    if attributes:
        weight = re.search(r"'weight': ([^,]+)", attributes[1])
        cells = [cell for cell in cells if cell] + ([weight[1]] if weight else [])
    return [cell.replace(",", ".") if k > 1 and between == ";" else cell for k, cell in enumerate(cells)]


def _matrix(rows: Sequence[Row], name: str) -> Graph | Topology | None:
    """Return the graph of a square table of numbers, with or without the names of nodes around it; else None."""
    cells, names = [row.cells for row in rows], None
    first = cells[0]
    if len(first) == len(cells) and not _is_number(first[0]) and first[1:] == [row[0] for row in cells[1:]]:
        cells, names = [row[1:] for row in cells[1:]], first[1:]
    elif len(first) + 1 == len(cells) and not _header(first, ()) and not any(map(_is_number, first)):
        cells, names = cells[1:], first
    if not cells or any(len(row) != len(cells) for row in cells):
        return None
    if not all(_is_number(cell) for row in cells for cell in row):
        return None
    a = np.array(cells, dtype=np.float64)
    if len(a) < LEAST and not (np.array_equal(a, a.T) and (is_adjacency(a) or np.allclose(a.sum(axis=1), 1))):
        return None
    a = square(a)
    built = from_adjacency(a) if is_adjacency(a) else from_gossip(a)
    graph = built if isinstance(built, Graph) else built.graph
    graph = Graph(graph.nodes, graph.edges, name, names=None if names is None else tuple(names))
    return graph if isinstance(built, Graph) else Topology(graph, built.weights, built.rule)


def _links(rows: Sequence[Row], name: str) -> Graph:
    """Return the graph of a list of links."""
    width = len(rows[0].cells)
    for line, cells in rows:
        if len(cells) not in (2, 3) or len(cells) != width:
            raise InputError(
                f"line {line} has {counted(len(cells), 'cell')}, line {rows[0].line} has {width}; a link has two names "
                "and perhaps a weight, a matrix is as wide as it is long; keep these columns"
            )
    below = Counter(cell for _, cells in rows[1:] for cell in cells[:2])
    if _header(rows[0].cells, below):
        _refuse_unknown(rows[0].cells[2:])
        rows = rows[1:]
    elif below and not any(map(below.get, rows[0].cells[:2])) and all(_joined(row, below) for row in rows[1:]):
        one, other = rows[0].cells[:2]
        raise InputError(
            f"line {rows[0].line} links {one!r} and {other!r}, which no other line has; it looks like a header; call "
            "it from,to, or put another link first"
        )
    if not rows:
        raise InputError("it has no line below its header; a graph has links; write one a line, as a,b")
    number: dict[str, int] = {}
    edges = []
    for line, (one, other, *_) in rows:
        if not one or not other or one == other:
            raise InputError(f"line {line} links {one!r} and {other!r}; a link joins two different nodes; remove it")
        edges.append([number.setdefault(end, len(number)) for end in (one, other)])
    strengths = np.array([_weight(row) for row in rows]) if width == 3 else None
    graph = Graph(len(number), np.array(edges, dtype=np.int64).reshape(-1, 2), name, None, tuple(number), strengths)
    if all(one.isdecimal() for one in number):  # as text, 10 would come before 2
        graph = graph.ordered(np.argsort([int(one) for one in number], kind="stable"))
    return graph


def _header(cells: Sequence[str], below: Any) -> bool:
    """Return whether cells are the names of columns: known ones, or words above numbers."""
    ends = tuple(re.sub(r"[ _]", "", cell.lower()) for cell in cells[:2])
    if set(cells[:2]) & set(below):
        return False
    numbers = bool(below) and all(map(_is_number, below)) and not any(map(_is_number, cells[:2]))
    return ends in HEADERS or numbers or (len(cells) == 3 and not _is_number(cells[2]) and cells[2].lower() in WEIGHTS)


def _refuse_unknown(columns: Sequence[str]) -> None:
    for column in columns:
        if column.lower() not in WEIGHTS:
            raise InputError(
                f"column {column!r} given; beside its two ends a link may have a weight, how much it counts; call the "
                "column weight if it is that, or remove it"
            )


def _joined(row: Row, ends: Counter[str]) -> bool:
    """Return whether another line has an end of this link too."""
    return max(ends[end] for end in row.cells[:2]) > 1


def _weight(row: Row) -> float:
    if not _is_number(row.cells[2]):
        raise InputError(
            f"line {row.line} has {row.cells[2]!r} for a weight; it must be a number, how much the link counts; mend it"
        )
    return float(row.cells[2])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
