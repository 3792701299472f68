"""The state of a node in files, so that a restart loses nothing.

A file is npz with a JSON header, never pickle, sealed by a digest of every byte in the comment of the archive, so that
a torn or rotten one is recognized. ``save`` writes ``<file>.new``, moves the file of before to ``<file>.last`` and the
new one into its place: whatever happens in between, or to one of them later, there is one that is whole.

What neighbors hold are copies of the hidden state at a round of a boot, so a boot must never say one thing twice. A
node that left in order has said nothing since its checkpoint: it goes on under the same boot, and neighbors that waited
notice nothing. After a crash, or from the last file but one, it may have: it goes on under another boot, and neighbors
ask for a snapshot. A file that is a copy of an old one looks as if the node had left in order; the protocol finds out
from its neighbors.
"""

import io
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from omkl import storage, wire
from omkl.algorithm import State
from omkl.errors import DiskError, InputError, RestoreError
from omkl.node.events import Damaged
from omkl.node.halves import Floats
from omkl.node.persistence.disk import Disk, RealDisk, beside
from omkl.node.protocol import Protocol
from omkl.node.role import Role, differences
from omkl.node.start import Sought, Start

_version = cache(version)  # to look it up takes longer than all the rest of a save

FORMAT = 2
SEAL = 32  # bytes of the digest
ABSENT = "is not there"
ANEW = "or start anew: omkl node reset"
OPTIONAL = ("memory", "velocity", "moved", "hearing")  # parts of a state that not all methods have


def save(path: Path | str, protocol: Protocol, clean: bool, disk: Disk | None = None) -> None:
    """Write the state of a node; ``clean`` says that it has left and will say nothing more under its boot.

    Raises ``OSError`` where the disk fails; a good file is left then, if there was one.
    """
    if protocol.diverged or not protocol.learning.is_finite():
        raise InputError(
            f"the model diverged at round {protocol.round}; it would replace a good one in {path}; lower eta or gamma"
        )
    path, disk = Path(path), disk or RealDisk()
    content = io.BytesIO()
    header = np.frombuffer(json.dumps(_header(protocol, clean)).encode(), dtype=np.uint8)
    storage.pack(content, {"header": header} | _arrays(protocol))
    disk.write(beside(path, "new"), seal(content.getvalue()))
    with suppress(FileNotFoundError):  # the first one, or a save that failed here before
        disk.move(path, beside(path, "last"))
    disk.move(beside(path, "new"), path)


def restore(path: Path | str, role: Role, boot: int, now: float, disk: Disk | None = None) -> Protocol:
    """Return the node as it was, with every neighbor still to be asked, or a new one where there is no file.

    Under the same boot if it had left in order, else under ``boot``, or the next number if that was the last one. Save
    it again before it says anything, as not clean: a crash from then on must not take this boot again.

    A file that is not whole is moved to ``<file>.bad`` and the last one but it is taken, under ``boot`` always; the
    node's first events tell of that.
    """
    path = Path(path)
    _version("omkl")  # which reads a file: later there may be no descriptor for it
    file, saved, why = _find(path, disk or RealDisk())
    if saved is None:
        return Protocol(role, boot, now)
    try:
        _check(file, saved, role)
        last, clean = saved.header["boot"], saved.header["clean"] and why is None and _is_same(saved, role)
        other = boot if boot != last else (boot + 1) % 2**16
        protocol = Protocol(role, last if clean else other, now)
        _fill(protocol, saved, clean)
        found = saved.header.get("sought")
        sought = None if found is None else Sought(tuple(found[0]), *found[1:])
        protocol.neighbors.start = start = Start(protocol.learning.state.theta, other, clean, sought)
        start.first = protocol.round
    except InputError:
        raise
    except storage.DAMAGED as error:
        told = f"{file} does not fit ({error}); was it another learner's? bring that back, {ANEW}"
        raise RestoreError(told) from None
    if why is not None:
        protocol.report(Damaged(str(path), why))
    return protocol


def seal(content: bytes) -> bytes:
    """Return an archive without a comment with the digest of its bytes as the comment."""
    body = content[:-2] + SEAL.to_bytes(2, "little")
    return body + blake2b(body, digest_size=SEAL).digest()


def _find(path: Path, disk: Disk) -> tuple[Path, storage.Content | None, str | None]:
    """Return the file to go on from, what it holds, None if there is none at all, and why it is not the first."""
    faults: dict[Path, str] = {}
    for file in (path, beside(path, "last")):
        try:
            saved = _parse(disk.read(file))
            if faults.get(path, ABSENT) != ABSENT:
                disk.move(path, beside(path, "bad"))  # the next save would put it in the place of the good one
        except FileNotFoundError:
            faults[file] = ABSENT
        except OSError as error:  # which says nothing of the file
            raise DiskError(f"{file} cannot be read ({error}); a node goes on from it; see to the disk first") from None
        except storage.DAMAGED as error:
            faults[file] = f"is not a whole checkpoint ({error})"
        else:
            return file, saved, faults.get(path)
    if set(faults.values()) == {ABSENT}:
        return path, None, None
    told = "; ".join(f"{file} {fault}" for file, fault in faults.items())
    raise RestoreError(f"{told}; no state to go on from; bring back a good one, {ANEW}")


def _header(protocol: Protocol, clean: bool) -> dict[str, Any]:
    neighbors = protocol.neighbors
    return {
        "omkl_checkpoint": FORMAT,
        "versions": {"omkl": _version("omkl"), "numpy": np.__version__, "wire": wire.VERSION},
        "id": protocol.role.id,
        "contract": neighbors.contract,
        "stances": protocol.role.stances,
        "clean": clean,
        "boot": neighbors.boot,
        "round": protocol.round,
        "ended": protocol.ended,
        "taken": protocol.taken,
        "lost": protocol.lost,
        "sought": neighbors.start and neighbors.start.saved(neighbors.boot),
        "left": protocol.left,
        "recent": [frame.hex() for frame in neighbors.recent],
        "labeled": [y is not None for _, y in protocol.waiting],
        "links": {peer: link.saved() for peer, link in neighbors.links.items()},
    }


def _arrays(protocol: Protocol) -> dict[str, Floats]:
    state, neighbors = protocol.learning.state, protocol.neighbors
    arrays = {"theta": state.theta, "hidden": state.hidden, "log_weights": state.log_weights}
    for name in OPTIONAL:
        arrays |= storage.flatten(name, getattr(state, name))
    arrays |= storage.flatten("moments", protocol.learning.moments)
    x = np.array([x for x, _ in protocol.waiting], dtype=np.float64 if protocol.learning.moments else np.float32)
    y = np.array([y for _, y in protocol.waiting if y is not None], dtype=np.float32)
    return arrays | {"copies": neighbors.copies, "x": x, "y": y}


def _parse(content: bytes) -> storage.Content:
    body, digest = content[:-SEAL], content[-SEAL:]
    if blake2b(body, digest_size=SEAL).digest() != digest:
        raise ValueError("its digest is wrong: a write was cut short, or it was changed")
    saved = storage.parse(io.BytesIO(content))
    if "omkl_checkpoint" not in saved.header:
        raise ValueError("it is something else")
    return saved


def _check(path: Path, saved: storage.Content, role: Role) -> None:
    if (found := saved.header["omkl_checkpoint"]) != FORMAT:
        raise InputError(f"{path} has checkpoint format {found}; this version reads {FORMAT}; use the omkl it is of")
    if saved.header["id"] != role.id:
        raise InputError(f"{path} is of node {saved.header['id']!r}; this is {role.id!r}; give each a file of its own")
    if saved.header["contract"] != role.contract():
        how = differences(role.contract(), saved.header["contract"])
        raise RestoreError(f"{path} is of another network: {how}; undo the change, {ANEW}")


def _is_same(saved: storage.Content, role: Role) -> bool:
    """Return whether the network's file says the same as then: a boot tells neighbors one thing of it."""
    return bool(saved.header.get("stances", role.stances) == role.stances)


def _fill(protocol: Protocol, saved: storage.Content, same_boot: bool) -> None:
    header, arrays = saved
    learning, neighbors = protocol.learning, protocol.neighbors
    fresh = learning.state
    optional = {name: storage.unflatten(name, getattr(fresh, name), arrays) for name in OPTIONAL}
    state = State(arrays["theta"], arrays["hidden"], arrays["log_weights"], **optional)
    if _shapes(state) != _shapes(fresh):
        raise ValueError(f"arrays {_shapes(state)} where {_shapes(fresh)} are due")
    learning.state, learning.round = state, header["round"]
    learning.moments = storage.unflatten("moments", learning.moments, arrays)
    if same_boot:
        neighbors.recent.extend(_frames(header["recent"]))
    for k, (peer, entry) in enumerate(header["links"].items()):
        if peer in neighbors.links:  # the network's file may have changed its graph
            # All messages, or, if they are of another version, none.
            kept = zip(entry["inbox"], _frames(entry["inbox"].values()), strict=False)
            neighbors.links[peer].restore(entry, arrays["copies"][k], {int(at): data for at, data in kept})
    y = iter(arrays["y"])
    samples = zip(arrays["x"], header["labeled"], strict=True)
    protocol.waiting.extend((x, next(y) if labeled else None) for x, labeled in samples)
    protocol.ended, protocol.taken, protocol.lost = header["ended"], header["taken"], header["lost"]
    protocol.left = header.get("left", 0)
    protocol.restored = True


def _shapes(state: State) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(leaf.dtype), leaf.shape) for leaf in map(np.asarray, storage.leaves(state))]


def _frames(frames: Iterable[str]) -> list[bytes]:
    """Return frames that were kept, without those of another version of the wire format: they are asked for again."""
    return [data for data in map(bytes.fromhex, frames) if data[0] >> 4 == wire.VERSION]
