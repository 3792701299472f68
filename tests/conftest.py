"""Fixtures for the whole suite: the array libraries the core must run on."""

import os
from importlib.metadata import version

# Before jax is imported, here and in the processes that tests start: programs that run once are not worth optimizing.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# XLA's older way to write loops takes a third of the time to compile. XLA dies of a flag that it does not know, so only
# where it is known to have these. Whoever sets $XLA_FLAGS, to nothing even, tests what users have.
if version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")
# Before numpy is: several processes run tests, and threads of BLAS that wait for a core only keep others from it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import array_api_strict
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from omkl import notes, wire
from omkl.quantizers import Message
from omkl.simulator import cache

hypothesis.settings.register_profile("omkl", deadline=None, derandomize=True)
hypothesis.settings.load_profile("omkl")

# Compiled programs: shared by all processes of the tests and kept for the next time; the user's are left alone.
os.environ["OMKL_CACHE"] = str(Path(__file__).parents[1] / ".pytest_cache" / "programs")
programs = cache.folder()
for setting, value in {"jax_compilation_cache_dir": programs and str(programs), **cache.SETTINGS}.items():
    jax.config.update(setting, value)  # type: ignore[no-untyped-call]
jax.config.update("jax_numpy_dtype_promotion", "strict")  # type: ignore[no-untyped-call]


LONGEST = ("real_faults", "sweeps", "sharding", "docs", "benchmarks_processes", "benchmarks_learning", "executors")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: one that began last would keep all others waiting."""
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    """Let every test hear the notes that a process logs once."""
    notes.forget()


@pytest.fixture(autouse=True, scope="module")
def released_programs() -> Iterator[None]:
    """Let go of compiled programs when there are many, after a file of tests.

    JAX keeps every program of a process, each in memory of its own: over the whole suite 4 GB and 60,000 mappings, and
    Linux allows a process 65,530. Past that LLVM dies.
    """
    yield
    mappings = Path("/proc/self/maps")
    if not mappings.exists() or mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()  # type: ignore[no-untyped-call]
        gc.collect()


MOST_MAPPINGS = 8_000  # some 1.5 GB


class Library(NamedTuple):
    """An array library and a way to call a function of the core on it."""

    xp: ModuleType
    jitted: bool

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Convert the NumPy arrays in ``args``, call, and convert back."""
        arrays = jax.tree.map(lambda a: self.xp.asarray(a) if isinstance(a, np.ndarray) else a, args, is_leaf=_is_array)
        result = (jax.jit(function) if self.jitted else function)(*arrays)
        return jax.tree.map(np.asarray, result, is_leaf=lambda leaf: hasattr(leaf, "__array_namespace__"))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray)


@pytest.fixture(params=["numpy", "strict", "jit"])
def library(request: pytest.FixtureRequest) -> Library:
    modules = {"numpy": np, "strict": array_api_strict, "jit": jnp}
    return Library(modules[request.param], request.param == "jit")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def assert_same_but_for_flips(one: np.ndarray, other: np.ndarray) -> None:
    """Compare bits that two programs count: rounding may flip a level, and a message then differs by a byte or two."""
    assert one.shape == other.shape
    apart = np.abs(one.astype(np.int64) - other)
    assert apart.max() <= 0.05 * other.max()
    assert (apart > 0).mean() <= 0.05


def frames(quantizer: Any, rows: int, n: int) -> tuple[Message, np.ndarray, np.ndarray]:
    """Return messages of blocks that are silent, alike or far apart, the bits of their levels, and their steps."""
    rng = np.random.default_rng(rows)
    costs = np.array(wire.costs(quantizer, n).levels, dtype=np.float32)
    steps = rng.choice([0, 2**-9, 2**-8, 2**-7, 1.5], size=(rows, 500), p=[0.3, 0.2, 0.2, 0.2, 0.1]).astype(np.float32)
    levels = np.where(steps[:, None] > 0, rng.integers(0, rng.integers(1, len(costs) + 1, 500), (rows, n, 500)), 0)
    message = Message(levels.astype(np.int16).transpose(2, 0, 1)[:, None], steps.T[:, None, :, None])
    return message, costs[levels].sum(axis=1), steps
