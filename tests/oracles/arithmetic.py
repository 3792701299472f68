"""Which arithmetic this process computes with: BLAS, libm and compilers round alike in some processes, not in all.

What is frozen to the bit is frozen under several of them, each by its key. Where a process has another one, what does
not depend on it must hold, and the rest to a tolerance.
"""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from omkl import noise

ROOT = Path(__file__).parents[2]
KINDS: tuple[dict[str, str], ...] = (
    {},
    {"OPENBLAS_CORETYPE": "Haswell"},
    {"OPENBLAS_CORETYPE": "Prescott"},
    {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "haswell",
    },
    {
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "NUMBA_CPU_NAME": "generic",
    },
)
"""Settings of the environment under which processes freeze: of this processor, and of what older ones have."""


def normals(name: str, *shape: int) -> np.ndarray:
    """Return numbers that look normal, the same everywhere: sums of twelve uniforms, no function of libm."""
    u = noise.uniforms(noise.key(0, name), 12 * int(np.prod(shape))).reshape(*shape, 12)
    return np.asarray(np.round(u.sum(axis=-1) - 6, 6))


@cache
def key() -> str:
    """Return what tells this arithmetic from another: a digest of products and functions at the oracles' sizes."""
    x, v = normals("x", 200, 5, 2).astype(np.float32), normals("v", 3, 20, 2).astype(np.float32)
    angles = np.tensordot(x, v, axes=((-1,), (-1,)))
    one = np.stack([np.dot(v, row) for row in x[:, 0]])
    wide = [normals("a", 6, k).astype(np.float32) @ normals("b", k, 8).astype(np.float32) for k in (6, 16, 30)]
    found = [angles, one, np.sin(angles), np.cos(angles), np.exp(angles), np.log1p(np.exp(-np.abs(angles)))]
    found += [np.exp(angles.astype(np.float64)), np.sqrt(np.abs(angles)), np.sum(angles, axis=-1), *wide]
    digest = hashlib.blake2b(digest_size=6)
    for array in found:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def blas() -> str:
    """Return NumPy's BLAS and the kind of processor that it computes for: its products round by their shape."""
    found = [one for one in threadpool_info() if one["user_api"] == "blas" and "numpy" in one["filepath"]]
    return " ".join(f"{one['internal_api']} {one['version']} {one.get('architecture')}" for one in found)


def compiler() -> str:
    """Return what compiles a node's round, and for which processor; nothing where it is not compiled."""
    try:
        import llvmlite.binding as llvm
        import numba
    except ImportError:
        return ""
    return f"{numba.__version__} {os.environ.get('NUMBA_CPU_NAME') or llvm.get_host_cpu_name()}"


def under_each(module: str) -> dict[str, str]:
    """Return what ``told()`` of an oracle returns under each kind of arithmetic that this machine has, by its key."""
    printed = {}
    for kind in KINDS:
        code = f"from tests.oracles import {module}; print({module}.key()); print({module}.told())"
        environment = os.environ | kind | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            sys.exit(done.stderr)
        found, _, rest = done.stdout.partition("\n")
        printed[found] = rest
    return printed
