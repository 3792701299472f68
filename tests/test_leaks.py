"""Importing or calling omkl changes nothing in the caller's process."""

import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jax
import pytest

from omkl.process import shared
from omkl.simulator import cache
from tests.node_processes import CHECKPOINT, LIMIT, write_network

PROGRAM = Path(__file__).with_name("leaking.py")


def test_a_program_that_uses_all_of_omkl_stays_as_it_was(tmp_path: Path) -> None:
    environment = os.environ | {"OMKL_CACHE": str(tmp_path / "programs"), "PYTHONWARNINGS": "default"}
    network = write_network(tmp_path, "a", metrics=True, tables=CHECKPOINT)
    done = subprocess.run(
        [sys.executable, PROGRAM, network], env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {step: changes for step, changes in told["changed"].items() if changes} == {}
    assert len(told["changed"]) == 9
    assert (told["kept"] > 0) == (jax.__version_info__ >= cache.SOUND)
    assert told["added"] == []


class Changed:
    """Something that a context changes."""

    def __init__(self) -> None:
        self.made, self.undone = 0, 0

    @contextmanager
    def change(self) -> Iterator[None]:
        self.made += 1
        try:
            yield
        finally:
            self.undone += 1


def test_the_first_to_enter_makes_a_change_and_the_last_to_leave_undoes_it() -> None:
    changed = Changed()
    context = shared(changed.change)
    first, second = ExitStack(), ExitStack()
    first.enter_context(context())
    second.enter_context(context())
    first.close()
    assert (changed.made, changed.undone) == (1, 0)
    second.close()
    assert (changed.made, changed.undone) == (1, 1)
    with pytest.raises(ZeroDivisionError), context():
        raise ZeroDivisionError
    assert (changed.made, changed.undone) == (2, 2)


def test_a_change_that_fails_can_be_tried_again() -> None:
    changed, fails = Changed(), [True]

    @contextmanager
    def change() -> Iterator[None]:
        if fails.pop():
            raise ZeroDivisionError
        with changed.change():
            yield

    context = shared(change)
    with pytest.raises(ZeroDivisionError), context():
        pass
    fails.append(False)
    with context():
        assert (changed.made, changed.undone) == (1, 0)
    assert (changed.made, changed.undone) == (1, 1)


def test_many_threads_leave_nothing() -> None:
    changed = Changed()
    context = shared(changed.change)
    together = threading.Barrier(8)

    def work() -> None:
        together.wait()
        for _ in range(200):
            with context():
                assert changed.made == changed.undone + 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert changed.made == changed.undone > 0


def test_filters_that_others_set_meanwhile_stay() -> None:
    with warnings.catch_warnings():
        warnings.resetwarnings()
        with warnings.catch_warnings():  # another thread's, which ends after the run
            inner = ExitStack()
            inner.enter_context(cache.kept_programs())
            assert len(warnings.filters) == len(cache.NOISE)
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "mine")
                inner.close()
                assert [one[0] for one in warnings.filters] == ["error"]
            assert not warnings.filters
        assert not warnings.filters
