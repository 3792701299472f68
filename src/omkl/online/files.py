"""A learner of rows as numbers and JSON, never pickle: what goes on from it goes on as if nothing had been.

While rows are kept, they are all there is to write. Later it is what they were calibrated to, the state of the method,
and the rows of the round that is open.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from omkl import storage
from omkl.calibration import Basis
from omkl.compressors import QUANTIZERS
from omkl.errors import InputError, pick
from omkl.features import Features, Kernel
from omkl.landmarks import Landmarks
from omkl.learners import LEARNERS
from omkl.losses import LOSSES
from omkl.methods import METHODS
from omkl.methods.mixing import MIXING
from omkl.online.adaptive import Adaptive, Watch
from omkl.online.calibrating import Calibrated, Units, lined, table
from omkl.online.learner import Online
from omkl.online.playing import Row
from omkl.online.tracking import Tracking
from omkl.reach import Reach
from omkl.registry import Registry
from omkl.sending import SENDING, Budget, Pace
from omkl.settings import values

FORMAT, READ, REMEDY = 2, (1, 2), "pass a file written by save"
NAMED: tuple[Registry[Any], ...] = (METHODS, MIXING, LEARNERS, LOSSES, QUANTIZERS, SENDING)
KNOWN: dict[str, Any] = {kind.__name__: kind for kind in (Basis, Budget, Kernel, Landmarks, Pace, Reach, Tracking)} | {
    kind.__name__: kind for known in NAMED for kind in known.own.values()
}
FEATURES, UNITS = Features._fields[:-1], ("input_center", "input_scale", "target_center", "target_scale")
COLUMNS = ("relevance", "directions")

Arrays: TypeAlias = storage.Arrays


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], Arrays]:
    """Return what the file of an estimator of that name holds."""
    header, arrays = storage.read(path, "estimator", READ, REMEDY)
    if (found := header.get("estimator")) != kind:
        raise InputError(f"{path} has an {found}; an {kind} was asked for; use {found}.load")
    return header, arrays


def plain(thing: Any) -> Any:
    """Return a setting as JSON; refuse one that is code."""
    if is_dataclass(thing) and (called := _called(thing)):
        return {"is": called} | {name: plain(value) for name, value in values(thing).items()}
    if isinstance(thing, list | tuple):
        return [plain(item) for item in thing]
    if isinstance(thing, dict):
        return {"is": "dict", "items": [[plain(key), plain(value)] for key, value in thing.items()]}
    if isinstance(thing, np.generic):
        return thing.item()
    if thing is not None and not isinstance(thing, str | int | float | bool):
        raise InputError(f"{thing!r} is not a setting that a file can hold; save by pickle, or use one that has a name")
    return thing


def _called(thing: Any) -> str | None:
    """Return what a file calls a class: its own name, or for one of another package or program that it is known by."""
    kind: type[Any] = type(thing)
    own, name = str(kind.__name__), str(getattr(thing, "name", None))
    if KNOWN.get(own) is kind:
        return own
    for known in NAMED:
        if name in known and known[name] is kind:
            return f"{known.group}:{name}"
    return None


def _kind(called: str) -> Any:
    group, _, name = called.partition(":")
    if not name:
        return KNOWN[called]
    return pick(group.removeprefix("omkl."), name, next(known for known in NAMED if known.group == group))


def setting(record: Any) -> Any:
    """Return the setting of a record by ``plain``."""
    if isinstance(record, dict) and record["is"] == "dict":
        return {setting(key): setting(value) for key, value in record["items"]}
    if isinstance(record, dict):
        return _kind(record["is"])(**{key: setting(value) for key, value in record.items() if key != "is"})
    return tuple(setting(item) for item in record) if isinstance(record, list) else record


def dump(online: Online) -> tuple[dict[str, Any], Arrays]:
    """Return what a learner has beyond its settings."""
    header: dict[str, Any] = {"omkl_estimator": FORMAT, "method": plain(online.method), "seed": online.seed}
    header |= {"seen": online.seen, "rounds": online.rounds, "rows": None}
    if online.kept is not None:
        return header, _rows("kept", online.kept)
    made = online.settled()
    header, arrays = header | {"rows": made.rows}, _calibrated("", made) | storage.flatten("state", online.state)
    if isinstance(online, Adaptive) and online.watch is not None:
        watched, beside = _watched(online.watch, made)
        header, arrays = header | {"watch": watched}, arrays | beside
    return header, arrays | _rows("open", list(online.open.values()))


def fill(online: Online, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Bring a learner that has seen nothing to where ``dump`` found another of the same settings."""
    online.seed, online.seen, online.rounds = header["seed"], header["seen"], header["rounds"]
    if header["rows"] is None:
        online.kept = _listed("kept", arrays)
        return
    online.kept, online.open = None, {row.node: row for row in _listed("open", arrays)}
    online.made = _made(online, "", header["rows"], arrays)
    online.state = _stated(online, "state", online.made, arrays)
    if isinstance(online, Adaptive):
        online.watch = _watch(online, header["watch"], arrays)
    online.compile()


def _calibrated(prefix: str, made: Calibrated) -> Arrays:
    parts = (*made.features[: len(FEATURES)], *made.inputs, *made.targets, made.relevance, made.directions)
    named = zip(FEATURES + UNITS + COLUMNS, parts, strict=True)
    return {prefix + name: part for name, part in named if part is not None}


def _made(online: Online, prefix: str, rows: int, arrays: Arrays) -> Calibrated:
    features = Features(*(arrays.get(prefix + name) for name in FEATURES))
    center, scale, *targets = (arrays[prefix + name] for name in UNITS)
    factors, directions = (arrays.get(prefix + name) for name in COLUMNS)
    method: Any = online.method.replace(loss=online.task.loss)
    if features.basis is not None:
        rank = features.basis.shape[-1]
        kind = Basis if features.landmarks is None else Landmarks
        method = method.replace(basis=kind(rank, max(rank, rows, 2)))
    if directions is not None:
        method, _ = lined(method, features, directions.shape[1] + 1)
    return Calibrated(rows, method, features, Units(center, scale), Units(*targets), factors, directions)


def _stated(online: Online, prefix: str, made: Calibrated, arrays: Arrays) -> Any:
    fresh = made.method.init(np, (online.nodes,), online.task.outputs, made.features.spectrum)
    return storage.unflatten(prefix, fresh, arrays)


def _watched(watch: Watch, made: Calibrated) -> tuple[dict[str, Any], Arrays]:
    """Return what a watch has, and the calibration before the rows it keeps if that was another one."""
    header = {"usual": watch.usual, "deviation": watch.deviation, "changed": watch.changed, "before": None}
    arrays = _rows("watched", watch.rows) | {"watched_losses": np.array(watch.losses)}
    if watch.made is None:
        return header, arrays
    if watch.made is not made:
        header |= {"before": watch.made.rows}
        arrays |= _calibrated("before_", watch.made)
    return header, arrays | storage.flatten("before_state", watch.state)


def _watch(online: Online, header: Mapping[str, Any], arrays: Arrays) -> Watch:
    rows, losses = _listed("watched", arrays), arrays["watched_losses"].tolist()
    watch = Watch(header["usual"], header["deviation"], header["changed"], rows, losses)
    if rows:
        before = header["before"]
        watch.made = online.made if before is None else _made(online, "before_", before, arrays)
        assert watch.made is not None
        watch.state = _stated(online, "before_state", watch.made, arrays)
    return watch


def _rows(name: str, rows: list[Row]) -> Arrays:
    if not rows:
        return {}
    lengths = np.array([len(row.x) for row in rows])
    numbers = {"x": table([row.x for row in rows]), "lengths": lengths, "y": np.stack([row.y for row in rows])}
    own = {"weight": np.array([row.weight for row in rows]), "node": np.array([row.node for row in rows])}
    return {f"{name}_{key}": value for key, value in (numbers | own).items()}


def _listed(name: str, arrays: Arrays) -> list[Row]:
    if f"{name}_x" not in arrays:
        return []
    parts = (arrays[f"{name}_{key}"] for key in ("x", "lengths", "y", "weight", "node"))
    return [Row(x[:n].copy(), y, float(weight), int(node)) for x, n, y, weight, node in zip(*parts, strict=True)]
