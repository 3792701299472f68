"""Changes to the whole process that are undone."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager


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
