"""Results side by side: a mapping that prints as a table."""

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from omkl import plots
from omkl.display import aligned, counted
from omkl.simulator.result import NO_INTERVAL, Result, half_shown, order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]


class Comparison(dict[str, Result]):
    """Results by the names of their cases; it prints, and shows in notebooks, as a table with 95 % intervals.

    The difference is that of the mean loss from the first case, over the seeds that both have: seed by seed, so that
    what a seed does to both cancels. ``omkl.compare`` returns it; ``omkl.Comparison(a=one, b=other)`` is of results of
    separate runs.
    """

    def __repr__(self) -> str:
        if not self:
            return "Comparison()"
        title, table, note = self._shown()
        return "\n".join([title, *aligned(table), note])

    def _repr_html_(self) -> str:
        if not self:
            return escape(repr(self))
        title, (head, *rows), note = self._shown()
        cells = [f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>"]
        for case, *row in rows:
            cells.append(f"<tr><th>{escape(case)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
        return f"<table><caption>{escape(title)}</caption>{''.join(cells)}</table><p>{escape(note)}</p>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for every case: means over seeds, and half the width of their 95 % intervals.

        ``pandas.DataFrame(comparison.rows())`` is the table as a data frame.
        """
        return [self._row(name, result) for name, result in self.items()]

    def plot(self, axes: "Axes | None" = None, *, window: int | None = None, against: str = "rounds") -> "Axes":
        """Draw the mean loss of every case with its 95 % interval, and return the axes; see ``Result.plot``."""
        drawn = plots.own_axes(self._title()) if axes is None else axes
        for name, result in self.items():
            result.plot(drawn, label=name, window=window, against=against)
        if axes is None:
            plots.legend_below(drawn)
        else:
            axes.legend(frameon=False)
        return drawn

    def _row(self, name: str, result: Result) -> dict[str, Any]:
        loss, final = _each(result), result.last(result.loss)
        apart = _apart(result, next(iter(self.values())))
        return {
            "case": name,
            "seeds": len(loss),
            "loss": float(loss.mean()),
            "loss_half": half_shown(loss),
            "difference": float(apart.mean()) if len(apart) else np.nan,
            "difference_half": half_shown(apart),
            "final_loss": float(final.mean()),
            "final_loss_half": half_shown(final),
            "final_accuracy": float(result.last(result.accuracy).mean()),
            "bytes": result.summary()["bits_per_node_round"] / 8,
        }

    def _title(self) -> str:
        one = next(iter(self.values()))
        data = one.title().partition(" on ")[2].partition(": ")[0]
        many = (one.theta.shape[0], "node"), (one.config["rounds"], "round"), (len(one.seeds), "seed")
        return f"{data}: {', '.join(counted(*each) for each in many)}"

    def _shown(self) -> tuple[str, list[list[str]], str]:
        """Return a title, a table of texts with its head, and a note."""
        rows = self.rows()
        classes = not all(np.isnan(row["final_accuracy"]) for row in rows)
        head = ["", "loss", "minus the first", "final loss", *(["accuracy"] if classes else []), "bytes a round"]
        table = [head]
        for k, row in enumerate(rows):
            table.append([
                row["case"],
                _with_half(row["loss"], row["loss_half"]),
                _with_half(row["difference"], row["difference_half"], "+") if k else "",
                _with_half(row["final_loss"], row["final_loss_half"]),
                *([f"{row['final_accuracy']:.2%}"] if classes else []),
                f"{row['bytes']:,.1f}",
            ])  # fmt: skip
        return f"{counted(len(self), 'case')} on {self._title()}", table, self._note(rows)

    def _note(self, rows: list[dict[str, Any]]) -> str:
        seeds = min(row["seeds"] for row in rows)
        if seeds < 2:
            return "one seed has no interval; pass seeds=10"
        if np.isnan(rows[0]["loss_half"]):
            return NO_INTERVAL
        one = f"± is half a 95 % interval over {seeds} seeds; a difference is taken seed by seed"
        return f"{one}\nrows are {order(next(iter(self.values())).config)}"


def _each(result: Result) -> Floats:
    return np.asarray(result.loss.mean(axis=1, dtype=np.float64))


def _apart(one: Result, other: Result) -> Floats:
    """Return the differences of the losses of two results under the seeds that both have."""
    mine, theirs = (dict(zip(each.seeds.tolist(), _each(each), strict=True)) for each in (one, other))
    return np.array([mine[seed] - theirs[seed] for seed in mine if seed in theirs])


def _with_half(value: float, half: float, sign: str = "") -> str:
    if np.isnan(value):
        return ""
    return f"{value:{sign}.4f}" + ("" if np.isnan(half) else f" ± {half:.4f}")
