"""Finished computations on disk, so that an interrupted run is taken up where it stopped."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from omkl import storage

Arrays: TypeAlias = storage.Arrays


@dataclass(frozen=True)
class Store:
    """A folder of npz files, each with the settings that made it."""

    folder: Path

    def get(self, name: str, settings: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays stored under ``name`` if made with these settings, else compute and store them."""
        path, header = self.folder / f"{name}.npz", json.dumps(settings | {"omkl": version("omkl")}, sort_keys=True)
        with suppress(FileNotFoundError, *storage.DAMAGED):
            found = storage.load(path).arrays
            if str(found.pop("settings", None)) == header:
                return found
        arrays = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write(path, {"settings": np.array(header)} | arrays)
        return arrays
