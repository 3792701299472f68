"""Tuning: find the settings with the least loss on some data and network, within so many bytes a round."""

import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from omkl.data.streams import is_dealt
from omkl.errors import InputError, real, whole
from omkl.experiment import Experiment
from omkl.methods import Method
from omkl_lab import sweeps
from omkl_lab.sweeps.work import Slots, processes
from omkl_lab.tuning.halving import BASE, Evaluate, Score, Trial, halve, judged, reasons, rungs
from omkl_lab.tuning.outcome import Candidate, Comparison, Tuned, compared
from omkl_lab.tuning.space import Drawn, Space, default, draw

__all__ = ["Candidate", "Comparison", "Progress", "Space", "Tuned", "tune"]

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the runs done, the runs in all, and what they are for."""


def tune(
    data: Any,
    topology: Any = None,
    nodes: int | None = None,
    method: Method | str | None = None,
    *,
    budget: float | None = None,
    space: Space | None = None,
    candidates: int = 27,
    seeds: int = 2,
    held_out: int = 20,
    folder: str | Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Tuned:
    """Return the setting with the least mean loss over the whole stream, found by successive halving over seeds.

    Candidates are drawn at random and run on few seeds; the best third goes on to three times as many fresh seeds, and
    so on. Then the best is compared with the base, which is in every rung, on seeds that had no part in the choice. A
    candidate that diverges, or that sends more than the budget, is dropped.

    Parameters
    ----------
    data, topology, nodes, **settings
        As for ``omkl.Experiment``, with these differences. ``seed`` is the first seed of the runs, which take one after
        the other from there on, and that of the draw. The run of seed s deals a table out in the order of ``shuffle +
        s``: a setting should not be tuned to one order. ``pooled`` scores every node's model on all nodes' samples, for
        nodes that see different data.
    method
        The base, which tuning starts from; None is ``recommended()``.
    budget
        Bytes that a node may send in a round, in the mean, header and all; None sets no limit.
    space
        What to try: names of settings, such as ``"gamma"``, ``"learner.prior"`` or ``"kernels.scale"`` (a factor on all
        bandwidths), each with a list of values, or a pair (low, high) that is drawn from evenly in the logarithm; None
        takes a space around the base.
    candidates
        How many to draw.
    seeds, held_out
        Runs of a candidate in the first rung, and of the best and the base in the end.
    folder
        Holds records of the runs, as for a sweep: the same call goes on where the last one stopped. None keeps none.
    jobs
        Processes that share the cores of this machine; None is one a core.
    progress
        Called after each run.

    Examples
    --------
    >>> import omkl
    >>> base, space = omkl.Gossip(gamma=0.2), {"eta": (0.1, 10), "quantizer.bits": [3, 4]}
    >>> tuned = omkl.tune("banana", "ring", 20, base, space=space, candidates=2, held_out=2, jobs=1)
    >>> bool(tuned.comparison.difference < 0)
    True
    """
    given = Experiment(data=data, topology=topology, nodes=nodes, method=method, **settings)
    base, seed = given.method, whole("seed", given.seed, 0)
    budget = None if budget is None else real("budget", budget)
    held_out = whole("held_out", held_out, 2)
    made = draw(base, default(base) if space is None else space, whole("candidates", candidates), seed)
    drawn = [Drawn({}, base), *made]
    plan = rungs(len(made), whole("seeds", seeds), seed)
    others = range(plan[-1].seeds.stop, plan[-1].seeds.stop + held_out)
    with ExitStack() as stack:
        place = Path(folder or stack.enter_context(tempfile.TemporaryDirectory()))
        slots = stack.enter_context(processes(jobs))
        evaluate = Runs([one.method for one in drawn], given, place, slots, progress)
        trials, ranked = halve(plan, evaluate, budget)
        _require_some(ranked, trials, budget)
        best, score, other = _confirmed(ranked, evaluate, others, budget)
    tried = tuple(Candidate(one.settings, *trial) for one, trial in zip(drawn, trials, strict=True))
    return Tuned(drawn[best].method, drawn[best].settings, compared(score, other), tried, tuple(plan), budget)


def _confirmed(
    ranked: Sequence[int], evaluate: Evaluate, seeds: range, budget: float | None
) -> tuple[int, Score, Score]:
    """Return the best candidate that also holds on other seeds, its score there, and that of the base."""
    for place in ranked:
        running = sorted({BASE, place})
        scores = evaluate(running, seeds, "held out")
        if judged(scores[-1], budget, 0).dropped is None:
            return place, scores[-1], scores[0]
    raise InputError(
        f"the best {len(ranked)} settings diverge or send more than the budget on other seeds; one must hold there; "
        "try more seeds, or allow more bytes"
    )


def _require_some(ranked: Sequence[int], trials: Sequence[Trial], budget: float | None) -> None:
    if not ranked:
        least = min((trial.bytes for trial in trials if trial.dropped == "over budget"), default=math.nan)
        sent = "" if math.isnan(least) else f", the least that was sent being {least:.1f} bytes"
        raise InputError(
            f"no setting is left ({reasons([trial.dropped for trial in trials], budget)}{sent}); one must stay finite "
            "and within the budget; allow more bytes, or give a space of smaller ranks, coarser levels, smaller rates"
        )


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of methods, the base first, in an experiment that they share."""

    methods: Sequence[Method]
    shared: Experiment
    folder: Path
    slots: Slots
    progress: Progress | None = None

    def __call__(self, places: Sequence[int], seeds: range, what: str) -> list[Score]:
        """Return the scores of the methods at these places."""

        def tell(done: int, runs: int, failed: int) -> None:
            if self.progress is not None:
                self.progress(done, runs, what)

        data, first = self.shared.data, self.shared.shuffle
        known = {} if isinstance(data, str) else {"data": {"name": "table", "sha256": sweeps.fingerprint(*data[:2])}}
        orders = {seed: first + seed if first is not None and is_dealt(data) else first for seed in seeds}
        runs = [
            replace(self.shared, method=self.methods[place], seed=seed, shuffle=order)
            for place in places
            for seed, order in orders.items()
        ]
        # The next rung goes on in the processes of the last one, which have their programs.
        points, folder = (sweeps.point(one, **known) for one in runs), self.folder / what.replace(" ", "-")
        rows = sweeps.swept(points, folder, lambda: nullcontext(self.slots), progress=tell)
        own = (rows[k : k + len(seeds)] for k in range(0, len(rows), len(seeds)))
        return [self._score(place, of_it) for place, of_it in zip(places, own, strict=True)]

    def _score(self, place: int, rows: Sequence[sweeps.Row]) -> Score:
        failed = next((row for row in rows if row["failure"] is not None), None)
        if failed is not None:
            if place == BASE and failed["failure"] != "diverged":
                raise InputError(f"the base cannot run: {failed['error']}")
            return Score(failure=failed["failure"])
        losses = tuple(row["pooled_loss" if self.shared.pooled else "loss"] for row in rows)
        return Score(losses, sum(row["bits_per_node_round"] for row in rows) / (8 * len(rows)))
