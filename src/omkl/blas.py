"""One thread for NumPy's matrix products, where they are small or run beside each other.

The library behind them would start as many threads for each, and those that wait for work spin: with two threads that
call it on two cores, products take twice as long, and beside other processes many times.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_lock, _held, _runs = threading.Lock(), ExitStack(), 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS to one thread within, for the whole process; the first run to enter sets it, the last resets it."""
    global _runs
    with _lock:
        _runs += 1
        if _runs == 1:
            _limit()
    try:
        yield
    finally:
        with _lock:
            _runs -= 1
            if not _runs:
                _held.close()


def _limit() -> None:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    _held.enter_context(threadpool_limits(1, "blas"))
