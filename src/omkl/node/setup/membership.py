"""A node more or less in a network's file: its text is changed in as few lines as may be, and read again.

The graph is written as ``links``, whatever drew it before, so that no other link changes. A node that is added goes
last in the list, and so opens its links itself. Places in the list are what nodes round at random by, where a quantizer
does; who is listed after a node that is removed moves up by one.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from omkl import storage
from omkl.errors import InputError, unknown
from omkl.node.config import NetworkConfig, load, parse
from omkl.node.settings import check_certified, check_word
from omkl.node.setup.template import filled, member

Links = list[tuple[str, str]]

HEADER = re.compile(r"\s*\[\[?\s*([\w.\"' -]+?)\s*\]?\]\s*(#.*)?")
ID = re.compile(r"""\s*id\s*=\s*["']([^"']*)["']""")


class Change(NamedTuple):
    """What is to be done about a file that was changed."""

    before: NetworkConfig
    after: NetworkConfig

    @property
    def restart(self) -> list[str]:
        """Nodes whose neighbors are other ones now; a node that is new, or gone, is not among them."""
        ids = [id for id in self.before.ids if id in self.after.ids]
        return [id for id in ids if set(self.before.neighbors(id)) != set(self.after.neighbors(id))]

    def parted(self, id: str) -> list[str]:
        """Return the neighbors of a node that is gone which none of the others is linked to now, if there are two."""
        left = list(self.before.neighbors(id))
        apart = [one for one in left if not self.after.neighbors(one).keys() & set(left)]
        return apart if len(apart) > 1 else []

    @property
    def weighed(self) -> list[str]:
        """Nodes that keep their neighbors, and of which a link has another weight."""
        ids = [id for id in self.before.ids if id in self.after.ids and id not in self.restart]
        return [id for id in ids if self.before.neighbors(id) != self.after.neighbors(id)]


def add(
    path: Path, id: str, neighbors: Sequence[str], host: str | None = None, port: int | None = None,
    metrics: str | None = None, dry_run: bool = False,
) -> Change:  # fmt: skip
    """Return what became of a network's file with one node more, linked to these neighbors; a dry run writes nothing.

    ``host`` is its address, this machine's where the last node has it too; it listens on the last one's port, or where
    that is taken on the first free one after it.
    """
    before = load(path)
    check_word("id", id)
    if before.tls is not None:
        check_certified("id", id)
    if id in before.ids:
        raise InputError(f"{id} is in {path} already; ids must differ; choose another")
    for peer in neighbors:
        if peer not in before.ids:
            raise InputError(unknown("neighbor", peer, before.ids))
    if not neighbors:
        raise InputError(f"no neighbors for {id}; a node talks to one at least; name some of {', '.join(before.ids)}")
    listen = _listen(before, id, host, port)
    table = member(id, listen, _page(before, listen) if metrics is None else _given(metrics, id, before))
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[_tables(lines)[-1][1] : _tables(lines)[-1][1]] = ["", *table.splitlines()]
    links = _links(before) + [(peer, id) for peer in dict.fromkeys(neighbors)]
    return _write(path, before, lines, links, [*before.ids, id], dry_run)


def remove(path: Path, id: str, links: Sequence[tuple[str, str]] = (), dry_run: bool = False) -> Change:
    """Return what became of a network's file without a node, and with these links in place of its own.

    A dry run writes nothing.
    """
    before = load(path)
    place = before.index(id)
    if len(before.ids) == 1:
        raise InputError(f"{id} is the only node; a network has one at least; remove the file")
    lines = path.read_text(encoding="utf-8").splitlines()
    start, end = _tables(lines)[place]
    while end < len(lines) and not lines[end].strip():
        end += 1
    lines[start:end] = []
    left = [one for one in before.ids if one != id]
    for link in links:
        for one in link:
            if one not in left:
                raise InputError(unknown("node", one, left))
    kept = [link for link in _links(before) if id not in link]
    fresh = [link for link in links if link not in kept and link[::-1] not in kept]
    return _write(path, before, lines, kept + fresh, left, dry_run)


def _listen(before: NetworkConfig, id: str, host: str | None, port: int | None) -> str:
    """Return where a new node listens."""
    protocol, _, last = before.members[-1].listen.partition("/")
    there, _, number = last.rpartition(":")
    address = there if host is None else filled(host, id, len(before.ids) + 1)
    taken = {one.listen for one in before.members}
    chosen = int(number) if port is None else port
    while port is None and f"{protocol}/{address}:{chosen}" in taken:
        chosen += 1
    return f"{protocol}/{address}:{chosen}"


def _given(metrics: str, id: str, before: NetworkConfig) -> str | None:
    return None if metrics == "none" else filled(metrics, id, len(before.ids) + 1)


def _page(before: NetworkConfig, listen: str) -> str | None:
    """Return where a new node serves metrics: as the last one, on a port that nobody on the same machine has."""
    if (last := before.members[-1].metrics) is None:
        return None
    machine, (host, _, port) = host_of(listen), last.rpartition(":")
    taken, chosen = {one.metrics for one in before.members if host_of(one.listen) == machine}, int(port)
    while f"{host}:{chosen}" in taken:
        chosen += 1
    return f"{host}:{chosen}"


def host_of(listen: str) -> str:
    """Return the name or the address in where a node listens."""
    return listen.partition("/")[2].rpartition(":")[0]


def _links(config: NetworkConfig) -> Links:
    return [(config.ids[i], config.ids[j]) for i, j in config.topology.graph.edges.tolist()]


def _tables(lines: Sequence[str]) -> list[tuple[int, int]]:
    """Return where each table of a node begins, and the line after its last key."""
    found = []
    for start, line in enumerate(lines):
        header = HEADER.fullmatch(line)
        if header and header[1] == "nodes" and line.lstrip().startswith("[["):
            ends = (k for k in range(start + 1, len(lines)) if not lines[k].strip() or lines[k].lstrip()[0] in "#[")
            found.append((start, next(ends, len(lines))))
    if not found:
        raise InputError("no [[nodes]] with lines of their own; nodes are added to such tables; edit the file by hand")
    return found


def _write(path: Path, before: NetworkConfig, lines: list[str], links: Links, ids: list[str], dry_run: bool) -> Change:
    """Write the lines with these links, if what they come to is what was wanted."""
    lines = _linked(lines, links)
    text = "\n".join(lines) + "\n"
    try:
        after = parse(tomllib.loads(text), path.parent)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not written as this can change it ({error}); edit it by hand") from None
    same = replace(after, members=before.members, topology=before.topology) == before
    if after.ids != ids or sorted(map(sorted, _links(after))) != sorted(map(sorted, links)) or not same:
        raise InputError(f"{path} is not written as this can change it; edit it by hand: links = {_text(links)}")
    if not dry_run:
        crlf = b"\r\n" in path.read_bytes()
        storage.write_whole(path, text.replace("\n", "\r\n") if crlf else text)
    return Change(before, after)


def _text(links: Links) -> str:
    return json.dumps([list(link) for link in links])


def _linked(lines: Sequence[str], links: Links) -> list[str]:
    """Return the lines with these links in place of those they have, or of the name of a graph."""
    first = next(k for k, line in enumerate(lines) if HEADER.fullmatch(line))
    top, rest = list(lines[:first]), [line for line in lines[first:] if not re.match(r"topology\s*=", line)]
    place = next((k for k, line in enumerate(top) if re.match(r"(# )?links\s*=", line)), None)
    while first and place is None and top and (not top[-1].strip() or top[-1].startswith("#")):
        rest.insert(0, top.pop())  # what is said of the first table
    made = ["links = [", *(f"    {json.dumps(list(link))}," for link in links), "]"]
    if place is None:
        return [*top, *made, "", *rest]
    end = place + 1
    while top[place].startswith("links") and _open("\n".join(top[place:end])):
        end += 1
    return [*top[:place], *made, *top[end:], *rest]


def _open(text: str) -> bool:
    """Return whether an array of arrays of names is yet to end."""
    bare = re.sub(r"#.*", "", text)
    return bare.count("[") > bare.count("]")
