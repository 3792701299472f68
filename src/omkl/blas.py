"""One thread for NumPy's matrix products, where they are small or run beside each other.

The library behind them would start as many threads for each, and those that wait for work spin: with two threads that
call it on two cores, products take twice as long, and beside other processes many times. Another number of threads also
rounds otherwise, and coarse messages make a large difference of a small one.
"""

from contextlib import AbstractContextManager, nullcontext

from omkl.process import shared


@shared
def one_thread() -> AbstractContextManager[object]:
    """Keep BLAS to one thread within, for the whole process."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[object] = threadpool_limits(1, "blas")
    return limits
