"""Points run wherever there is a slot for them, those of one compiled program after each other."""

import math
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field

from omkl.errors import DivergedError, InputError
from omkl.experiment import Experiment
from omkl.simulator import rounds
from omkl.simulator.description import versions
from omkl_lab.sweeps.points import Point
from omkl_lab.sweeps.records import BLANK, Record

LOOK = 5.0  # seconds between looks for workers that came or went
PROGRAMS = 16  # compiled ones that a process keeps; each holds about 5 MB

_kept: set[str] = set()


def _run(program: str, one: Experiment) -> Record:
    """Return what came of a point, in the process that runs it."""
    if program not in _kept and len(_kept) >= PROGRAMS:
        rounds.compiled().clear_cache()  # type: ignore[attr-defined]
        _kept.clear()
    _kept.add(program)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome: Record = {"summary": _summary(one)}
        except DivergedError as error:
            outcome = {"failure": "diverged", "error": str(error)}
        except InputError as error:
            outcome = {"failure": "input", "error": str(error)}
        except Exception as error:  # a bug in one point is no reason to lose the others
            text = f"{type(error).__name__}: {error}"
            outcome = {"failure": "unexpected", "error": text, "traceback": traceback.format_exc()}
    told = [str(one.message) for one in caught]
    return BLANK | outcome | {"seconds": time.perf_counter() - start, "warnings": told, "versions": versions()}


def _summary(one: Experiment) -> dict[str, float | None]:
    result = one.run()
    summary = result.summary()
    if result.pooled_loss is not None:
        summary["pooled_loss"] = float(result.pooled_loss.mean())
    return {key: value if math.isfinite(value) else None for key, value in summary.items()}


class Queue:
    """Points waiting, by program: to compile one takes hundreds of times what it takes to run a small point."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._groups: dict[str, deque[Point]] = {}
        self._begun: set[str] = set()
        for one in points:
            self._groups.setdefault(one.program, deque()).append(one)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def take(self, program: str) -> Point:
        """Return a point of this program, else of one that nobody has begun, else of the one with most points left."""
        if program not in self._groups:
            program = max(self._groups, key=lambda other: (other not in self._begun, len(self._groups[other])))
        self._begun.add(program)
        one = self._groups[program].popleft()
        if not self._groups[program]:
            del self._groups[program]
        return one


@dataclass(eq=False)
class Slot:
    """A place that runs one point at a time: a process of its own here, or a thread of a worker of the cluster."""

    start: Callable[[], Executor]
    death: type[BaseException]  # what a future raises when the process that ran it died
    program: str = ""
    executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.executor = self.start()

    def submit(self, one: Point) -> "Future[Record]":
        """Return the future of a point that begins here."""
        self.program = one.program
        return self.executor.submit(_run, one.program, one.experiment)

    def outcome(self, future: "Future[Record]") -> Record:
        """Return what came of a point; an error here is not the point's own, since those come back as a record."""
        try:
            return future.result()
        except self.death as error:
            if isinstance(error, BrokenExecutor):
                self.executor = self.start()
            text = "the process that ran it died; it may have run out of memory; retry it with fewer jobs"
            return BLANK | {"failure": "died", "error": text}
        except Exception as error:
            raise InputError(
                f"a worker cannot run points ({type(error).__name__}: {error}); it needs omkl[sim] as installed here, "
                "and its scheduler alive; mend that and run the sweep again: what is recorded is kept"
            ) from error


def outcomes(points: Iterable[Point], slots: Callable[[], list[Slot]]) -> Iterator[tuple[Point, Record]]:
    """Yield points and what came of them, as they end; ``slots`` is asked again whenever one may be free."""
    queue, ended = Queue(points), list[tuple[Point, Record]]()
    busy: dict[Future[Record], tuple[Slot, Point]] = {}
    while queue or busy or ended:
        taken = {id(slot) for slot, _ in busy.values()}
        for slot in slots() if queue or busy else ():
            if queue and id(slot) not in taken:
                one = queue.take(slot.program)
                busy[slot.submit(one)] = slot, one
        yield from ended  # while the next ones run
        done, _ = wait(busy, LOOK, FIRST_COMPLETED)
        ended = [(one, slot.outcome(future)) for future in done for slot, one in [busy.pop(future)]]
