"""Matrix products keep to one thread during runs, and get theirs back after the last of them."""

import os
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

from omkl.blas import one_thread

threadpoolctl = pytest.importorskip("threadpoolctl")


RUN = """
import hashlib, omkl
result = omkl.simulate("banana", "ring", nodes=20, rounds=40)
print([hashlib.sha256(part.tobytes()).hexdigest() for part in (result.basis, result.loss, result.theta)])
"""


def test_a_seed_gives_the_same_whatever_the_number_of_threads() -> None:
    told = set()
    for count in ("1", "2"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count}
        done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True)
        told.add(done.stdout)
    assert len(told) == 1


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
