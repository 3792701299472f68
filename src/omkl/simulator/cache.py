"""Compiled programs kept between processes, in the user's cache, so that each is compiled once on a machine."""

import hashlib
import os
import platform
import tempfile
import warnings
from functools import cache
from pathlib import Path

import jax

from omkl.data import files

SOUND = (0, 10, 2)  # JAX before this complains of programs that it compiled for the same CPU, and compiles them again
SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}


def folder() -> Path | None:
    """Return where programs are kept: below ``$OMKL_CACHE`` or the user's cache; None where that is ``off``.

    Kinds of processors have folders of their own: homes are shared, and a program may use what another one lacks.
    """
    place = os.environ.get("OMKL_CACHE")
    if place == "off" or jax.__version_info__ < SOUND:
        return None
    return (Path(place) if place else files.cache_folder() / "xla") / _processor()


def keep_programs() -> None:
    """Have JAX keep its programs, unless it already has a place for them or the folder cannot be written."""
    place = folder()
    if place is None or jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return
    # A file that another process is writing, or was killed at: JAX compiles instead, and there is nothing to be done.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
    for name, value in {"jax_compilation_cache_dir": str(place), **SETTINGS}.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
