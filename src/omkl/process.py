"""Changes to the whole process that are undone."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any


def shared(change: Callable[[], AbstractContextManager[object]]) -> Callable[[], AbstractContextManager[None]]:
    """Return a context that threads can be in together: the first to enter makes the change, the last undoes it.

    A context that puts back what it found is not enough: where two overlap, the one that ends last has found the change
    of the other, and would put that back.
    """
    lock, made, inside = threading.Lock(), ExitStack(), 0

    @contextmanager
    def entered() -> Iterator[None]:
        nonlocal inside
        with lock:
            if not inside:
                made.enter_context(change())
            inside += 1
        try:
            yield
        finally:
            with lock:
                inside -= 1
                if not inside:
                    made.close()

    return entered


@contextmanager
def silenced(noise: Mapping[str, type[Warning]]) -> Iterator[None]:
    """Ignore warnings that begin so; to be ``shared``.

    ``warnings.catch_warnings`` would also undo what other threads do to the filters meanwhile.
    """
    found: Any = warnings.filters
    known = list(found)
    for text, kind in noise.items():
        warnings.filterwarnings("ignore", text, kind)
    added = [one for one in found if one not in known]
    try:
        yield
    finally:
        now: Any = warnings.filters
        for filters in (found, now):
            filters[:] = [one for one in filters if one not in added]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
