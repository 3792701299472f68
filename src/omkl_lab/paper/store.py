"""Finished computations on disk, so that an interrupted run is taken up where it stopped."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.model import DAMAGED

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Store:
    """A folder of npz files, each with the settings that made it."""

    folder: Path

    def get(self, name: str, settings: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays stored under ``name`` if made with these settings, else compute and store them."""
        path, header = self.folder / f"{name}.npz", json.dumps(settings | {"omkl": version("omkl")}, sort_keys=True)
        found = _read(path)
        if found is not None and str(found.pop("settings", None)) == header:
            return found
        arrays = compute()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, settings=np.array(header), **arrays)
        write_whole(path, buffer.getvalue())
        return arrays


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file beside its place and rename it: whoever finds it, also after an interruption, finds it whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
    unfinished.replace(path)


def _read(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    except (FileNotFoundError, *DAMAGED):
        return None
