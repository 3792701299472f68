"""Candidates run as the points of a sweep, one a seed: all those of a candidate share its compiled program."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.methods import Method
from omkl_lab import sweeps
from omkl_lab.sweeps.work import Slots
from omkl_lab.tuning.halving import BASE, Score

Progress: TypeAlias = Callable[[int, int, str], None]
"""Called with the runs done, the runs in all, and what they are for."""


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

        points = self._points(places, seeds)
        # The next rung goes on in the processes of the last one, which have their programs.
        rows = sweeps.swept(
            points, self.folder / what.replace(" ", "-"), lambda: nullcontext(self.slots), progress=tell
        )
        own = (rows[k : k + len(seeds)] for k in range(0, len(rows), len(seeds)))
        return [self._score(place, of_it) for place, of_it in zip(places, own, strict=True)]

    def _points(self, places: Sequence[int], seeds: range) -> list[sweeps.Point]:
        data, first = self.shared.data, self.shared.shuffle
        known = {} if isinstance(data, str) else {"data": {"name": "table", "sha256": sweeps.fingerprint(*data)}}
        orders = {seed: None if first is None else first + seed for seed in seeds}
        return [
            sweeps.point(replace(self.shared, method=self.methods[place], seed=seed, shuffle=order), **known)
            for place in places
            for seed, order in orders.items()
        ]

    def _score(self, place: int, rows: Sequence[sweeps.Row]) -> Score:
        failed = next((row for row in rows if row["failure"] is not None), None)
        if failed is not None:
            if place == BASE and failed["failure"] != "diverged":
                raise InputError(f"the base cannot run: {failed['error']}")
            return Score(failure=failed["failure"])
        losses = tuple(row["pooled_loss" if self.shared.pooled else "loss"] for row in rows)
        return Score(losses, sum(row["bits_per_node_round"] for row in rows) / (8 * len(rows)))
