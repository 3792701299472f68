"""Matrix products keep to one thread during runs, and get theirs back after the last of them."""

from contextlib import ExitStack

import numpy as np
import pytest

from omkl.blas import one_thread

threadpoolctl = pytest.importorskip("threadpoolctl")


def threads() -> list[int]:
    """Return the threads of every library that is loaded; some are built for one."""
    np.ones((2, 2)) @ np.ones((2, 2))
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def test_runs_that_overlap_give_the_threads_back_once() -> None:
    with threadpoolctl.threadpool_limits(2, "blas"):
        before = threads()
        assert 2 in before
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_thread())
        assert set(threads()) == {1}
        second.enter_context(one_thread())
        first.close()  # the first to enter is the first to leave
        assert set(threads()) == {1}
        second.close()
        assert threads() == before


def test_a_run_that_fails_gives_them_back() -> None:
    with threadpoolctl.threadpool_limits(2, "blas"):
        before = threads()
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert threads() == before
