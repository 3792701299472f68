"""The state of a node in a file, so that a restart loses nothing.

A file is npz with a JSON header, never pickle, and whole or not there: it is written beside the last one, flushed and
renamed. What neighbors hold are copies of the hidden state at a round of a boot, so a boot must never say one thing
twice. A node that left in order has said nothing since its checkpoint: it goes on under the same boot, and neighbors
that waited notice nothing. After a crash it may have, so it goes on under another boot, and neighbors ask for a
snapshot.
"""

import io
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omkl import wire
from omkl.algorithm import State
from omkl.errors import InputError
from omkl.model import DAMAGED
from omkl.node.learning import Floats
from omkl.node.links import Link
from omkl.node.protocol import Protocol
from omkl.node.role import Role, differences

FORMAT = 1


class Checkpoint(NamedTuple):
    """What a file holds."""

    header: dict[str, Any]
    arrays: dict[str, Floats]


def save(path: Path | str, protocol: Protocol, clean: bool) -> None:
    """Write the state of a node; ``clean`` says that it has left and will say nothing more under its boot."""
    if protocol.diverged:
        raise InputError(
            f"the model diverged at round {protocol.round}; it would replace a good one in {path}; lower eta or gamma"
        )
    content = io.BytesIO()
    header = np.frombuffer(json.dumps(_header(protocol, clean)).encode(), dtype=np.uint8)
    np.savez(content, header=header, **_arrays(protocol))  # type: ignore[arg-type]
    _replace(Path(path), content.getbuffer())


def restore(path: Path | str, role: Role, boot: int, now: float) -> Protocol:
    """Return the node as it was, with every neighbor still to be asked.

    Under the same boot if it had left in order, else under ``boot``, or the next number if that was the last one. Save
    it again before it says anything, as not clean: a crash from then on must not take this boot again.
    """
    saved = _read(Path(path))
    try:
        _check(path, saved, role)
        last, clean = saved.header["boot"], saved.header["clean"]
        protocol = Protocol(role, last if clean else (boot if boot != last else (boot + 1) % 2**16), now)
        _fill(protocol, saved, clean)
    except InputError:
        raise
    except DAMAGED as error:
        raise InputError(f"{path} does not fit ({error}); was it another learner's? delete it to start anew") from None
    return protocol


def _header(protocol: Protocol, clean: bool) -> dict[str, Any]:
    neighbors = protocol.neighbors
    return {
        "omkl_checkpoint": FORMAT,
        "versions": {"omkl": _version(), "numpy": np.__version__, "wire": wire.VERSION},
        "id": protocol.role.id,
        "contract": neighbors.contract,
        "clean": clean,
        "boot": neighbors.boot,
        "round": protocol.round,
        "ended": protocol.ended,
        "recent": [frame.hex() for frame in neighbors.recent],
        "labeled": [y is not None for _, y in protocol.waiting],
        "links": {peer: _link(link) for peer, link in neighbors.links.items()},
    }


def _version() -> str:
    try:
        return version("omkl")
    except PackageNotFoundError:
        return "unknown"


def _link(link: Link) -> dict[str, Any]:
    inbox = {str(at): data.hex() for at, data in link.inbox.items()}
    return {"boot": link.boot, "round": link.round, "adrift": link.adrift, "doubted": link.doubted, "inbox": inbox}


def _arrays(protocol: Protocol) -> dict[str, Floats]:
    state, neighbors = protocol.learning.state, protocol.neighbors
    arrays = {"theta": state.theta, "hidden": state.hidden, "log_weights": state.log_weights}
    arrays |= {f"memory_{k}": np.asarray(leaf) for k, leaf in enumerate(_leaves(state.memory))}
    x = np.array([x for x, _ in protocol.waiting], dtype=np.float32)
    y = np.array([y for _, y in protocol.waiting if y is not None], dtype=np.float32)
    return arrays | {"copies": neighbors.copies, "x": x, "y": y}


def _replace(path: Path, content: memoryview) -> None:
    """Put a file in the place of another: at any moment one of them is there, whole."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(path: Path) -> Checkpoint:
    remedy = "delete it to start anew, or bring back a good one"
    try:
        with path.open("rb") as opened:
            if (broken := zipfile.ZipFile(opened).testzip()) is not None:  # before a length in it is believed
                raise ValueError(f"the check of {broken} is wrong")
            opened.seek(0)
            with np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
        found = header["omkl_checkpoint"]
    except FileNotFoundError:
        raise InputError(f"{path} is no file; a node resumes from the checkpoint it wrote; see its folder") from None
    except (*DAMAGED, OSError, RuntimeError, struct.error) as error:
        raise InputError(f"{path} is no whole checkpoint ({error}); a write was cut short; {remedy}") from None
    if found != FORMAT:
        raise InputError(f"{path} has checkpoint format {found}; this version reads {FORMAT}; use the omkl it is of")
    return Checkpoint(header, arrays)


def _check(path: Path | str, saved: Checkpoint, role: Role) -> None:
    if saved.header["id"] != role.id:
        raise InputError(f"{path} is of node {saved.header['id']!r}; this is {role.id!r}; give each a file of its own")
    if saved.header["contract"] != role.contract():
        how = differences(role.contract(), saved.header["contract"])
        raise InputError(f"{path} is of another network: {how}; undo the change, or delete it to start anew")


def _fill(protocol: Protocol, saved: Checkpoint, same_boot: bool) -> None:
    header, arrays = saved
    learning, neighbors = protocol.learning, protocol.neighbors
    fresh = learning.state
    memory = (arrays[f"memory_{k}"] for k, _ in enumerate(_leaves(fresh.memory)))
    state = State(arrays["theta"], arrays["hidden"], arrays["log_weights"], _rebuild(fresh.memory, memory))
    if _shapes(state) != _shapes(fresh):
        raise ValueError(f"arrays {_shapes(state)} where {_shapes(fresh)} are due")
    learning.state, learning.round = state, header["round"]
    if same_boot:
        neighbors.recent.extend(bytes.fromhex(frame) for frame in header["recent"])
    for k, (peer, entry) in enumerate(header["links"].items()):
        if peer in neighbors.links:  # the network's file may have changed its graph
            _restore_link(neighbors.links[peer], entry, arrays["copies"][k])
    y = iter(arrays["y"])
    samples = zip(arrays["x"], header["labeled"], strict=True)
    protocol.waiting.extend((x, next(y) if labeled else None) for x, labeled in samples)
    protocol.ended = header["ended"]


def _restore_link(link: Link, entry: dict[str, Any], copy: Floats) -> None:
    link.copy[...] = copy
    link.boot, link.round, link.adrift, link.doubted = (entry[key] for key in ("boot", "round", "adrift", "doubted"))
    link.inbox = {int(at): bytes.fromhex(data) for at, data in entry["inbox"].items()}


def _leaves(memory: Any) -> list[Any]:
    """Return the arrays of a learner's memory, a tuple of arrays and tuples."""
    return [leaf for part in memory for leaf in _leaves(part)] if isinstance(memory, tuple) else [memory]


def _rebuild(like: Any, leaves: Iterator[Any]) -> Any:
    """Return leaves in the shape of another memory."""
    if not isinstance(like, tuple):
        return next(leaves)
    parts = [_rebuild(part, leaves) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def _shapes(state: State) -> list[tuple[str, tuple[int, ...]]]:
    return [(str(leaf.dtype), leaf.shape) for leaf in map(np.asarray, _leaves(tuple(state)))]
