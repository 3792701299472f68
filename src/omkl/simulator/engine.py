"""Run methods on a whole network under many seeds, by whatever suits the run.

Arrays are ``(J, S, ...)``: nodes first, seeds second. Several cases, each a method on a network, may share a pass: the
same samples, features and dither. Three executors take them, and tests hold them to each other: compiled loops on a CPU
(``loops``), JAX (``scans``) on accelerators, over several devices and for parts that have no compiled text, and NumPy
(``eager``) for runs that are over before the others are loaded.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.arrays import Array
from omkl.errors import DivergedError, extra
from omkl.features import Features
from omkl.methods import Info, Method, Round
from omkl.methods.protocol import MethodState
from omkl.simulator.measures import metrics
from omkl.simulator.watching import Look
from omkl.storage import leaves
from omkl.topology import Faults, Topology

ADVICE = "lower gamma or eta, scale the data, or use a quantizer with a larger delta (see omkl explain)"
FEW_ROUNDS = 600  # up to which NumPy is quick: it takes a millisecond or two for each, however few the nodes
LITTLE_WORK = 10**7  # numbers of models and similarities, up to which NumPy takes no longer than loading the others

log = logging.getLogger(__name__)

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""

Measure: TypeAlias = Callable[[Method, Round, Info, Array, MethodState], Any]
"""What to record of a round, given how many hear each node: a NamedTuple of arrays ``(S, ...)``, first the loss."""


class Case(NamedTuple):
    """A method on a network: one graph, or several that take turns, and what fails in it."""

    method: Method
    turns: tuple[Topology, ...]
    faults: Faults | None = None

    @property
    def changes(self) -> bool:
        """Whether the network is another one from round to round."""
        return self.faults is not None or len(self.turns) > 1


class Audience(NamedTuple):
    """Who looks at the first case, at which nodes, and after how many rounds at least again."""

    nodes: tuple[int, ...]
    every: int
    see: Callable[[Look], None]


class Problem(NamedTuple):
    """What all cases of a pass share: inputs ``(T, J, d)``, targets ``(T, J, C)``, and every seed's features."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    features: Features
    """Frequencies ``(S, P, D, d)``, and the basis that they have, if any."""
    seeds: list[int]
    every: int = 1
    """Every so many rounds are measured."""

    def share(self, which: npt.NDArray[np.int64]) -> "Problem":
        """Return the same for some of the seeds."""
        return self._replace(features=self.features.of(which), seeds=[self.seeds[s] for s in which])


def run(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure = metrics,
    progress: Progress | None = None,
    place: Any = None,
    audience: Audience | None = None,
) -> list[tuple[MethodState, Any]]:
    """Return, for every case, the state after the last round and what was measured, as NumPy arrays.

    The kernels of a case are the first of those the features were drawn for. ``place`` has the devices that share the
    work; None is this one. An audience is shown the first seed.
    """
    tell = progress or tell_nobody
    if place is None and audience is None and not has_accelerator():
        if is_small(problem, cases):
            from omkl.simulator import eager

            return eager.run(problem, cases, measure, tell)
        if measure is metrics and (loops := compiled_loops()):
            return _shared_out(problem, cases, tell, loops)
    return _scans().run(problem, cases, measure, tell, place, audience)  # type: ignore[no-any-return]


def _shared_out(problem: Problem, cases: Sequence[Case], tell: Progress, loops: Any) -> list[tuple[MethodState, Any]]:
    """Return the outcome of every case: by compiled loops where they know the method, by JAX where they do not."""
    from omkl.compiled.plan import unknown_part

    unknown = {k: part for k, case in enumerate(cases) if (part := unknown_part(case.method)) is not None}
    for part in set(unknown.values()):
        log.info("rounds run over arrays: %s has no compiled text", part)
    known = [k for k in range(len(cases)) if k not in unknown]
    found: dict[int, tuple[MethodState, Any]] = {}
    if known:
        part_of = portion(tell, 0, len(known), len(cases))
        found |= zip(known, loops.run(problem, [cases[k] for k in known], part_of), strict=True)
    if unknown:
        part_of = portion(tell, len(known), len(unknown), len(cases))
        found |= zip(unknown, _scans().run(problem, [cases[k] for k in unknown], metrics, part_of), strict=True)
    return [found[k] for k in range(len(cases))]


def portion(tell: Progress, before: int, own: int, every: int) -> Progress:
    """Return what is called with the progress of some parts of a run, after some others."""
    return lambda done, rounds: tell((before * rounds + own * done) // every, rounds)


def tell_nobody(done: int, rounds: int) -> None:
    """Take no notice of progress."""


@cache
def has_accelerator() -> bool:
    """Return whether JAX has one; it is not loaded only to find that it has no plugin for any."""
    if "jax" not in sys.modules:
        named = os.environ.get("JAX_PLATFORMS", "")
        plugged = find_spec("jax_plugins") is not None or any(entry_points(group="jax_plugins"))
        if named == "cpu" or not (plugged or named):
            return False
    try:
        import jax
    except ImportError:
        return False
    return jax.default_backend() != "cpu"


def is_small(problem: Problem, cases: Sequence[Case]) -> bool:
    """Return whether a run is over sooner than compiled programs are loaded."""
    numbers = sum(case.method.bank.members * case.method.sent for case in cases) * problem.y.shape[-1]
    marks = problem.features.landmarks
    numbers += 0 if marks is None else marks.shape[-2]
    work = len(problem.X) * problem.X.shape[1] * len(problem.seeds) * numbers
    steady = not any(case.changes for case in cases)
    return steady and len(problem.X) <= FEW_ROUNDS and work <= LITTLE_WORK and isinstance(problem.X, np.ndarray)


def _scans() -> Any:
    """Return the executor in JAX."""
    with extra("sim", "jax"):
        from omkl.simulator import scans
    return scans


def compiled_loops() -> Any:
    """Return the executor of compiled loops, where Numba is installed; else None."""
    try:
        from omkl.simulator import loops
    except ImportError as error:
        log.info('rounds run over arrays: %s; Numba comes with pip install "omkl[fast]"', error)
        return None
    return loops


def require_finite_models(state: MethodState, rounds: int) -> None:
    """Refuse a state that is not finite."""
    if not all(np.isfinite(leaf).all() for leaf in leaves(state)):
        raise DivergedError(f"a model is not finite after {rounds} rounds; a run must stay finite; {ADVICE}")


def require_finite(loss: npt.NDArray[np.float32], last: int, every: int, seeds: Sequence[int]) -> None:
    """Refuse losses that are not finite; the last row is that of the last round before ``last`` to be recorded."""
    bad = np.argwhere(~np.isfinite(loss))
    if len(bad):
        row, s = bad[0]
        t = (last // every - len(loss) + row + 1) * every - 1
        raise DivergedError(
            f"the loss is {loss[row, s]} at round {t} of seed {seeds[s]}; a run must stay finite; {ADVICE}"
        )
