"""One thread for NumPy's matrix products, where they are small or run beside each other.

The library behind them would start as many threads for each, and those that wait for work spin: with two threads that
call it on two cores, products take twice as long, and beside other processes many times. Another number of threads also
rounds otherwise, and coarse messages make a large difference of a small one.
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

from omkl.process import shared


@shared
def one_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread within, for the whole process."""
    try:
        limits: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1, user_api="blas")
    except ImportError:
        return nullcontext()
    return limits


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return the libraries of this process: to find them takes milliseconds, and only an import brings others."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
