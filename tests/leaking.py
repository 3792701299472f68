"""A program that uses all of omkl, and tells what that has changed of the process: run by ``test_leaks``."""

import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_info

# What these change when they are imported is theirs.
OTHERS = """jax.experimental.pallas.triton jax.experimental.compilation_cache.compilation_cache numba joblib networkx
    scipy.special scipy.sparse.csgraph zenoh pydantic prometheus_client sklearn.utils.estimator_checks river.base
    river.utils matplotlib.figure plotly starlette.applications uvicorn pandas pyarrow.parquet cvxpy"""

X = np.random.default_rng(0).standard_normal((8, 3, 2))
Y = np.sign(X[..., 0])
ROWS = np.random.default_rng(1).standard_normal((600, 2))  # enough for estimators to calibrate


def state() -> dict[str, Any]:
    """Return what belongs to the whole process."""
    loggers = {name: logging.getLogger(name) for name in ("", "omkl", "omkl_lab")}
    return {
        "environment": dict(os.environ),
        "filters": [repr(one) for one in warnings.filters],
        "hooks": repr((warnings.showwarning, sys.excepthook, threading.excepthook)),
        "jax": {name: repr(value) for name, value in jax.config.values.items()},
        "logging": {name: repr((one.handlers, one.level, one.propagate)) for name, one in loggers.items()},
        "signals": {str(one): repr(signal.getsignal(one)) for one in signal.valid_signals()},
        "floats": repr((np.geterr(), np.geterrcall(), np.get_printoptions())),
        "threads": sorted(one.name for one in threading.enumerate()),
        "random": repr((random.getstate(), np.random.get_state())),
        "pools": {one["filepath"]: one["num_threads"] for one in threadpool_info()},
        "processes": multiprocessing.get_start_method(allow_none=True),
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "interpreter": [sys.path[:], sys.getrecursionlimit(), sys.getswitchinterval(), str(Path.cwd())],
        "locale": locale.setlocale(locale.LC_ALL),
    }


def load() -> None:
    import omkl

    for name in (*omkl.__all__, "dashboard", "plots", "river", "sklearn"):
        getattr(omkl, name)


def simulate(**options: Any) -> None:
    import omkl

    omkl.simulate((X, Y), "path", **options)


def compare() -> None:
    """Run by compiled loops, and where samples are pooled by JAX."""
    import omkl
    from omkl.simulator import engine

    engine.is_small = lambda *_: False
    cases = {"gossip": (omkl.paper(), "path"), "alone": (omkl.Local(), "path")}
    omkl.compare((X, Y), cases, seeds=2)
    omkl.compare((X, Y), cases, seeds=2, pooled=True)


def interrupt() -> None:
    """Have a run end by an exception in its midst."""

    def end(done: int, rounds: int) -> None:
        raise KeyboardInterrupt

    try:
        simulate(progress=end)
    except KeyboardInterrupt:
        return
    raise AssertionError("the run was not interrupted")


def overlap() -> None:
    """Have a run begin within another and end after it."""
    inside, ended = threading.Event(), threading.Event()

    def second(done: int, rounds: int) -> None:
        inside.set()
        assert ended.wait(60)

    def first(done: int, rounds: int) -> None:
        others.append(pool.submit(simulate, progress=second))
        assert inside.wait(60)

    others: list[Any] = []
    with ThreadPoolExecutor(1) as pool:
        simulate(progress=first)
        ended.set()
        for other in others:
            other.result()


def sklearn() -> None:
    import omkl

    omkl.sklearn.OMKLClassifier(nodes=3).fit(ROWS, np.sign(ROWS[:, 0])).predict(ROWS)


def river() -> None:
    import omkl

    learner = omkl.river.OMKLRegressor()
    for a, b in ROWS.tolist():
        learner.learn_one({"a": a, "b": b}, a)
    learner.predict_one({"a": 1.0, "b": 0.0})


def node() -> None:
    import omkl

    before = state()["environment"]
    with omkl.Node.join(sys.argv[1], "a") as one:
        assert state()["environment"] == before
        one.observe([0.5, -1.0], 1)
        one.wait(60)
    for thread in threading.enumerate():
        if thread.name.startswith("omkl"):
            thread.join(60)  # about to end


def optimize() -> None:
    import omkl

    omkl.topology.fdla(omkl.topology.ring(4))


STEPS: list[Callable[[], None]] = [load, simulate, compare, interrupt, overlap, sklearn, river, node, optimize]


def main() -> None:
    """Print what each step has changed, and which files a program of the user's own adds to omkl's cache."""
    for other in OTHERS.split():
        import_module(other)
    jax.jit(lambda x: x + 1)(1)
    changed: dict[str, Any] = {}
    for step in STEPS:
        before = state()
        step()
        after = state()
        changed[step.__name__] = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    cache = Path(os.environ["OMKL_CACHE"])
    kept = set(cache.rglob("*-cache"))
    jax.jit(lambda x: x * 2 + 17)(np.ones(3))
    added = [str(file) for file in set(cache.rglob("*-cache")) - kept]
    print(json.dumps({"changed": changed, "kept": len(kept), "added": added}))


if __name__ == "__main__":
    main()
