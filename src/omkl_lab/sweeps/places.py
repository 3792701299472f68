"""Where points run: processes of this machine, or the workers of a Dask cluster."""

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from omkl.errors import InputError, extra, whole
from omkl_lab.sweeps.work import Slot

IDLE = 10.0  # seconds that a process waits for work; one whose parent was killed ends 30 s after that
PATIENCE = 30.0  # seconds that a cluster may be without a worker

Slots: TypeAlias = Callable[[], list[Slot]]
"""Asked again whenever one may be free."""


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def processes(jobs: int | None) -> Iterator[Slots]:
    """Yield the slots of this machine: every one an executor of one process, so that a death has one point to blame."""
    with extra("sim", "joblib"):
        from joblib.externals.loky.process_executor import ProcessPoolExecutor
    cores = _cores()
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
