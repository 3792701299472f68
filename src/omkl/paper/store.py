"""Finished computations on disk, so that an interrupted run is taken up where it stopped."""

import json
from collections.abc import Callable
from dataclasses import dataclass
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
        path, header = self.folder / f"{name}.npz", json.dumps(settings, sort_keys=True)
        found = _read(path)
        if found is not None and str(found.pop("settings", None)) == header:
            return found
        arrays = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        # Written beside and renamed: a file that is there is whole.
        unfinished = path.with_suffix(".part")
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, settings=np.array(header), **arrays)
        unfinished.rename(path)
        return arrays


def _read(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return dict(file)
    except (FileNotFoundError, *DAMAGED):
        return None
