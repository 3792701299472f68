"""Runs points in processes of this machine, or on the workers of a Dask cluster.

Points with the same compiled program run one after another in the same process.
"""

import logging
import math
import os
import signal
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from omkl.errors import DivergedError, InputError, extra, whole
from omkl.experiment import Experiment
from omkl.simulator import rounds
from omkl.simulator.description import versions
from omkl_lab.sweeps.points import BLANK, Point, Record

LOOK = 5.0  # seconds between looks for workers that came or went
PROGRAMS = 16  # compiled ones that a process keeps; each holds about 5 MB
IDLE = 10.0  # seconds that a process waits for work; one whose parent was killed ends 30 s after that
PATIENCE = 30.0  # seconds that a cluster may be without a worker

_kept: set[str] = set()


def _run(program: str, one: Experiment) -> Record:
    """Run a point in this process, and return its record."""
    if program not in _kept and len(_kept) >= PROGRAMS:
        rounds.compiled().clear_cache()  # type: ignore[attr-defined]
        _kept.clear()
    _kept.add(program)
    logging.getLogger("omkl").setLevel(logging.ERROR)  # of this process: every other one would say the same
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = one.run()
            summary = result.summary()
            if result.pooled_loss is not None:
                summary["pooled_loss"] = float(result.pooled_loss.mean())
            known: Record = {key: x if math.isfinite(x) else None for key, x in summary.items()}
            outcome: Record = {"summary": known | {"final_losses": result.last(result.loss).tolist()}}
        except DivergedError as error:
            outcome = {"failure": "diverged", "error": str(error)}
        except InputError as error:
            outcome = {"failure": "input", "error": str(error)}
        except Exception as error:  # a bug in one point is no reason to lose the others
            text = f"{type(error).__name__}: {error}"
            outcome = {"failure": "unexpected", "error": text, "traceback": traceback.format_exc()}
    told = [str(one.message) for one in caught]
    return BLANK | outcome | {"seconds": time.perf_counter() - start, "warnings": told, "versions": versions()}


class Queue:
    """Points that wait, by program: to compile one takes hundreds of times as long as to run a small point."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._groups: dict[str, deque[Point]] = {}
        self._begun: set[str] = set()
        for one in points:
            self._groups.setdefault(one.program, deque()).append(one)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def take(self, program: str) -> Point:
        """Return a point of this program, else of one that is not begun, else of the one with most points left."""
        if program not in self._groups:
            program = max(self._groups, key=lambda other: (other not in self._begun, len(self._groups[other])))
        self._begun.add(program)
        one = self._groups[program].popleft()
        if not self._groups[program]:
            del self._groups[program]
        return one


@dataclass(eq=False)
class Slot:
    """A place that runs one point at a time: a process of its own here, or a thread of a worker of the cluster."""

    start: Callable[[], Executor]
    death: type[BaseException]  # what a future raises when the process that ran it died
    program: str = ""
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = self.start()

    def submit(self, one: Point) -> "Future[Record]":
        """Return the future of a point that begins here."""
        self.program = one.program
        return self.executor.submit(_run, one.program, one.experiment)

    def outcome(self, future: "Future[Record]") -> Record:
        """Return the record of a point. An error here is not the point's own: those are in its record."""
        try:
            return future.result()
        except self.death as error:
            if isinstance(error, BrokenExecutor):
                self.executor = self.start()
            text = "the process that ran it died; it may have run out of memory; retry it with fewer jobs"
            return BLANK | {"failure": "died", "error": text}
        except Exception as error:
            raise InputError(
                f"a worker cannot run points ({type(error).__name__}: {error}); it needs omkl[sim] as installed here, "
                "and its scheduler alive; mend that and run the sweep again: what is recorded is kept"
            ) from error


Slots: TypeAlias = Callable[[], list[Slot]]
"""Asked again whenever one may be free."""


def outcomes(points: Iterable[Point], slots: Slots) -> Iterator[tuple[Point, Record]]:
    """Yield points and what came of them, as they end; ``slots`` is asked again whenever one may be free."""
    queue, ended = Queue(points), list[tuple[Point, Record]]()
    busy: dict[Future[Record], tuple[Slot, Point]] = {}
    while queue or busy or ended:
        taken = {id(slot) for slot, _ in busy.values()}
        for slot in slots() if queue or busy else ():
            if queue and id(slot) not in taken:
                one = queue.take(slot.program)
                busy[slot.submit(one)] = slot, one
        yield from ended  # while the next ones run
        done, _ = wait(busy, LOOK, FIRST_COMPLETED)
        ended = [(one, slot.outcome(future)) for future in done for slot, one in [busy.pop(future)]]


@contextmanager
def processes(jobs: int | None) -> Iterator[Slots]:
    """Yield the slots of this machine: each is one process, so that a process that dies has one point to blame."""
    with extra("sim", "joblib"):
        from joblib.externals.loky.process_executor import ProcessPoolExecutor
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    jobs = len(cores) if jobs is None else whole("jobs", jobs)
    shares = [cores[k::jobs] or [cores[k % len(cores)]] for k in range(jobs)]
    make = partial(ProcessPoolExecutor, 1, timeout=IDLE, initializer=_settle)
    slots = [Slot(partial(make, initargs=(share,)), BrokenExecutor) for share in shares]
    try:
        yield lambda: slots
    finally:
        for slot in slots:
            slot.executor.shutdown(kill_workers=True)  # type: ignore[call-arg]


def _settle(cores: list[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)  # the engine runs a thread on every core it has
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the other processes need the accelerator too


@contextmanager
def cluster_of(address: str) -> Iterator[Slots]:
    """Yield the slots of a cluster, one a thread of its workers; workers may come and go."""
    with extra("cluster", "distributed"):
        from distributed import Client, KilledWorker
    try:
        client: Any = Client(address, timeout=PATIENCE, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise InputError(f"no scheduler answers at {address} ({error}); start one: dask scheduler") from None
    known: dict[str, list[Slot]] = {}

    def slots() -> list[Slot]:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            rule = f"for {PATIENCE:g} s; points need one; start it: dask worker {address}"
            raise InputError(f"{address} has had no worker {rule}") from None
        threads = client.nthreads()
        for worker in threads.keys() - known.keys():
            # A worker is only preferred: points whose worker is gone go to another.
            make = partial(client.get_executor, workers=[worker], allow_other_workers=True, pure=False)
            known[worker] = [Slot(make, KilledWorker) for _ in range(threads[worker])]
        return [slot for worker in threads for slot in known[worker]]

    with client:
        yield slots
