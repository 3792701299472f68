"""Compiled programs kept between processes, in the user's cache, so that each is compiled once on a machine."""

import hashlib
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from omkl.data import files
from omkl.process import shared, silenced

SOUND = (0, 10, 2)  # JAX before this complains of programs that it compiled for the same CPU, and compiles them again
SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}
NOISE = {
    # A file that another process writes, or was killed at, or a folder that cannot be written: JAX compiles instead.
    "Error (reading|writing) persistent compilation cache": UserWarning,
}


def folder() -> Path | None:
    """Return where programs are kept: below ``$OMKL_CACHE`` or the user's cache; None where that is ``off``.

    Kinds of processors have folders of their own: homes are shared, and a program may use what another one lacks.
    """
    place = os.environ.get("OMKL_CACHE")
    if place == "off" or jax.__version_info__ < SOUND:
        return None
    return (Path(place) if place else files.cache_folder() / "xla") / _processor()


@shared
@contextmanager
def kept_programs() -> Iterator[None]:
    """Have JAX keep its programs, unless it already has a place for them."""
    place = None if jax.config.jax_compilation_cache_dir else folder()  # type: ignore[attr-defined]
    changes = {"jax_compilation_cache_dir": str(place), **SETTINGS} if place else {}
    before = {name: getattr(jax.config, name) for name in changes}
    with silenced(NOISE):
        _configure(changes)
        try:
            yield
        finally:
            _configure({name: before[name] for name in changes if getattr(jax.config, name) == changes[name]})
            if changes:  # JAX would go on with the folder that it has opened
                compilation_cache.reset_cache()


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
