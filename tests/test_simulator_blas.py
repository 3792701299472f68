"""Matrix products keep to one thread during runs, and get theirs back after the last of them."""

from contextlib import ExitStack

import numpy as np
import pytest

from omkl.simulator.blas import one_thread

threadpoolctl = pytest.importorskip("threadpoolctl")


def threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_runs_that_overlap_give_the_threads_back_once() -> None:
    with threadpoolctl.threadpool_limits(2, "blas"):
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_thread())
        assert threads() == {1}
        second.enter_context(one_thread())
        first.close()  # the first to enter is the first to leave
        assert threads() == {1}
        second.close()
        assert threads() == {2}


def test_a_run_that_fails_gives_them_back() -> None:
    with threadpoolctl.threadpool_limits(2, "blas"):
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert threads() == {2}
