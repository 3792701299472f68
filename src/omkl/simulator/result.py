"""What a simulation returns: curves, final models, and the configuration that made them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from omkl import metrics, plots, storage
from omkl.arrays import Array
from omkl.data.encoding import Encoding
from omkl.display import as_html, as_text, counted, short
from omkl.errors import InputError, MissingExtraError, extra, pick
from omkl.features import Features, transform
from omkl.learners import LEARNERS
from omkl.model import Model, loss_from, model_of
from omkl.topology.files import is_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT, WITH_RELEVANCE = 1, 2  # the second where columns are weighed, which readers of the first would leave out
_CURVES = ("loss", "accuracy", "disagreement", "bits", "link_bits")
_FINAL = ("theta", "log_weights", "seeds", "rounds")
_FEATURES = ("frequencies", "basis", "landmarks", "limits", "bandwidths", "relevance")
_OPTIONAL = (*_FEATURES, "center", "scale")  # in final.npz where there are such

GREW, WORSE = 4, 1.1  # times the disagreement of the first half, and the loss by guessing: such nodes drift apart
BEYOND = 1.02  # times the loss by guessing: from here on a run is said to be worse
FEW_RECORDED = 30  # rounds, of which a tenth says too little
LARGE = 10_000  # losses from here on are shown without fractions
MOST_LABEL = 160  # characters of what a method is called
NO_INTERVAL = "± needs SciPy: pip install 'omkl[sim]'"
MORE = {"see": '.loss  .summary()  .model(node=0)  .plot()  .save("run")'}

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Result:
    """What a simulation gives: curves over rounds for every seed, and the final model of every node.

    It prints as a few lines. ``summary()`` has its figures, ``model(node=3)`` what a node has learned, ``plot()`` a
    figure, and ``save("folder")`` keeps all of it.

    Shapes below: J nodes, S seeds, R recorded rounds, P models that are weighed, C outputs, d inputs, D frequencies of
    a kernel, L landmarks, r coefficients in a basis, B bandwidths.

    Attributes
    ----------
    config
        All settings of the run, and the versions of the software that ran it.
    seeds, rounds
        The seeds ``(S,)`` and the recorded rounds ``(R,)``. They are the two axes of the curves.
    loss
        ``(S, R)``. The loss C(f, y), mean over nodes. Each sample is scored before it is learned.
    accuracy
        ``(S, R)``. The share of correct labels, mean over nodes; nan in regression.
    disagreement
        ``(S, R)``. How far models are from the network's mean theta: the root of the mean square over nodes.
    bits
        ``(S, R)``. Bits that all nodes send in the round, headers included. A message to several neighbors counts once,
        and a node without a link in that round sends none. Exact up to 16 megabytes a round, then to seven digits.
    link_bits
        ``(S, R)``. The same, but a message counts once for each neighbor that hears it.
    weights
        ``(S, R, P)``. The weights of the kernels, mean over nodes.
    theta, log_weights
        Final models ``(J, S, P, C, 2D)``, or ``(J, S, P, C, r)`` in a basis, and log weights ``(J, S, P)``. On
        landmarks there is one model, and P counts the ways in which it is read.
    frequencies
        ``(S, P, D, d)``; None on landmarks.
    basis
        ``(S, P, 2D, r)``, ``(S, 1, L, r)`` on landmarks, or None.
    landmarks, limits, bandwidths, relevance
        ``(S, L, d)``, ``(S, 2, d)``, ``(S, B)`` and ``(S, d)``, or None.
    center, scale
        ``(J, d)``, what each node's inputs were standardized by in the end, or None.
    pooled_loss
        ``(S, R)``. The loss of a node's model on all nodes' samples, mean over nodes; None without ``pooled=True``.
    """

    config: dict[str, Any]
    seeds: npt.NDArray[np.int64]
    rounds: npt.NDArray[np.int64]
    loss: Floats
    accuracy: Floats
    disagreement: Floats
    bits: npt.NDArray[np.int64]
    link_bits: npt.NDArray[np.int64]
    weights: Floats
    theta: Floats
    log_weights: Floats
    frequencies: Array = None
    basis: Floats | None = None
    landmarks: Floats | None = None
    limits: Floats | None = None
    bandwidths: Floats | None = None
    relevance: Floats | None = None
    center: npt.NDArray[np.float64] | None = None
    scale: npt.NDArray[np.float64] | None = None
    pooled_loss: Floats | None = None

    def __repr__(self) -> str:
        return as_text(self.title(), self.lines() | MORE)

    def _repr_html_(self) -> str:
        return as_html(self.title(), self.lines() | MORE)

    def title(self) -> str:
        """Return what ran, in words."""
        data, graph = self.config["data"], self.config["topology"]
        network = graph if isinstance(graph, str) else graph["name"] if isinstance(graph, dict) else "a matrix"
        joined = f"graph of {short(network)}," if is_file(network) else f"{short(network)} of"
        many = (self.theta.shape[0], "node"), (self.config["rounds"], "round"), (len(self.seeds), "seed")
        method = self.config.get("label", self.config["method"]["name"])
        called = f"a table ({short(data['name'])})" if "name" in data else "a table"
        what = f"{short(method, MOST_LABEL)} on {short(data) if isinstance(data, str) else called}"
        return f"{what}: {joined} {', '.join(counted(*each) for each in many)}"

    def lines(self) -> dict[str, str]:
        """Return the lines that it prints, by their names."""
        summary, seeds = self.summary(), len(self.seeds)
        halves = half_shown(self.loss.mean(axis=1, dtype=np.float64)), half_shown(self.last(self.loss))
        apart = ["" if np.isnan(half) else f" ± {_figure(half)}" for half in halves]
        over = (
            ""
            if seeds == 1
            else f", 95 % over {seeds} seeds"
            if apart[1]
            else f", mean of {seeds} seeds; {NO_INTERVAL}"
        )
        lines = {
            "loss": f"{_figure(summary['loss'])}{apart[0]} over all rounds, scored before learning",
            "final loss": f"{_figure(summary['final_loss'])}{apart[1]} over the last tenth{over}",
            "rows": order(self.config) if apart[1] else "nan",
            "guessing": f"{_figure(self._guess('loss'))} over the last tenth, if one always guessed {self._guessed}",
            "typical error": f"{_figure(self._typical_error(), 1000)} over the last tenth, root mean square",
            "final accuracy": f"{summary['final_accuracy']:.2%} over the last tenth{self._accuracy_of_guessing()}",
            "R2": f"{self.r2.mean():.4f} over all rounds{self._late_r2()}, of the targets' variance in the same rounds",
            "bytes": f"{summary['bits_per_node_round'] / 8:,.1f} sent by a node in a round, header and all",
            "hint": self._hint(),
            "note": self._is_worse_than_guessing(),
        }
        return {name: text for name, text in lines.items() if not text.startswith("nan")}

    @property
    def _is_squared(self) -> bool:
        return bool(self.config["method"]["loss"]["name"] == "squared")

    def _guess(self, measure: str) -> float:
        """Return what always guessing the same gives over the last tenth; nan where that is not known."""
        return float(self.config.get("guessing", {}).get(measure, np.nan))

    @property
    def _guessed(self) -> str:
        return f"{'the mean' if self._is_squared else 'each class as often as it comes'} in these rounds"

    def _accuracy_of_guessing(self) -> str:
        """Return how often the class that comes most is right, in words."""
        share = self._guess("accuracy")
        return "" if np.isnan(share) else f"; {share:.2%} if one always guessed the most frequent class"

    def _hint(self) -> str:
        """Return what to do where the end is clearly worse, as of data that drift, and the learner forgets nothing."""
        rule = self.config["method"].get("learner")
        if not isinstance(rule, dict) or rule.get("forget") != 1 or not worsens(self.loss.mean(axis=0)):
            return "nan"
        if drifted_apart(self):  # which a warning says, with another remedy
            return "nan"
        name = rule["name"]
        python = f" (learner=omkl.{LEARNERS.own[name].__name__}(forget=0.99))" if name in LEARNERS.own else ""
        flag = f"--learner '{{name=\"{name}\", forget=0.99}}'{python}"
        return f"the last tenth is worse than what came before; if the data drift, forget what is old: {flag}"

    def _is_worse_than_guessing(self) -> str:
        """Return that guessing loses less in the end, and what may help, where it clearly does."""
        guess = self._guess("loss")
        if self._is_squared:  # of targets that drift those of the end alone may differ little
            guess = max(guess, self.config.get("target_variance", 0.0))
        if len(self.rounds) < FEW_RECORDED or not float(self.last(self.loss).mean()) > BEYOND * guess:
            return "nan"
        if drifted_apart(self):
            return "nan"
        is_table = isinstance(data := self.config["data"], dict) and "table" in data
        columns = " or fewer columns (--use, --drop)" if is_table else ""
        return f"the final loss is worse than guessing: more rows{columns} may help"

    def _typical_error(self) -> float:
        """Return the root of the squared loss, in the units of the one target; nan of all else."""
        return float(self.last(self.loss).mean() ** 0.5) if self._is_squared and self.theta.shape[-2] == 1 else np.nan

    def _late_r2(self) -> str:
        """Return the share of the variance that was predicted in the end, in words."""
        spread = self._guess("loss")
        if not (self._is_squared and spread > 0):
            return ""
        return f", {1 - float(self.last(self.loss).mean()) / spread:.4f} over the last tenth"

    @property
    def names(self) -> tuple[str, ...]:
        """What the nodes are called, in their order: names of the data or of the graph, else numbers."""
        return tuple(self.config.get("names") or map(str, range(self.theta.shape[0])))

    def model(self, seed: int | None = None, node: int | str = 0) -> Model:
        """Return the final model of one node, by its number or name, under one seed; the first by default."""
        nodes, seeds = self.theta.shape[0], self.seeds.tolist()
        if isinstance(node, str):
            node = pick("node", node, {name: k for k, name in enumerate(self.names)})
        if not 0 <= node < nodes:
            raise InputError(f"node is {node}; this run has nodes 0 ... {nodes - 1}")
        if seed is not None and seed not in seeds:
            raise InputError(f"seed is {seed}; this run has seeds {seeds[0]} ... {seeds[-1]}")
        s = 0 if seed is None else seeds.index(seed)
        loss = loss_from(self.config["method"]["loss"])
        center, scale = (None if part is None else part[node] for part in (self.center, self.scale))
        record = self.config["data"]
        encoding = Encoding.of(record["table"]) if isinstance(record, dict) and "table" in record else None
        made = model_of(self.features(s), self.theta[node, s], self.log_weights[node, s], loss, center, scale)
        return made if encoding is None else replace(made, encoding=encoding)

    def features(self, s: int) -> Features:
        """Return what z(x) is computed with under seed number s of the run."""
        return Features(**{name: getattr(self, name) for name in _FEATURES}).of(s)

    @property
    def r2(self) -> npt.NDArray[np.float64]:
        """The share of the targets' variance that was predicted over all recorded rounds, ``(S,)``; nan for classes."""
        squared = self.config["method"]["loss"]["name"] == "squared"
        spread = self.config.get("target_variance", np.nan) if squared else np.nan
        return np.asarray(1 - self.loss.mean(axis=1, dtype=np.float64) / spread)

    def regret(self, data: Any, regularization: float = 1e-3, changes: Sequence[int] = ()) -> npt.NDArray[np.float64]:
        """Return what the mean node lost beyond the best fixed model, ``(S, R)``, added up over the recorded rounds.

        The best is ``metrics.hindsight`` of each seed's features for the stream ``(X, y)`` that was simulated; with
        ``changes`` the regret is dynamic.
        """
        X, y = np.asarray(data[0], dtype=np.float32), np.asarray(data[1])
        if X.shape[:2] != (self.config["rounds"], self.config["nodes"]) or self.center is not None:
            raise InputError(
                f"X has shape {X.shape}; regret takes the stream that was simulated, (T, J, d), and as it was learned: "
                "not one that nodes standardized themselves; see omkl.data.as_stream"
            )
        loss = loss_from(self.config["method"]["loss"])
        made = map(self.features, range(len(self.seeds)))
        best = [metrics.hindsight(transform(X, own), y, loss, regularization, changes).mean(axis=1) for own in made]
        return metrics.regret(self.loss, np.stack(best)[:, self.rounds])

    def last(self, curve: npt.ArrayLike, last: float = 0.1) -> npt.NDArray[np.float64]:
        """Return the mean of a curve over the last of the recorded rounds, a tenth of them, for every seed ``(S,)``."""
        given = np.asarray(curve)
        return np.asarray(given[:, tail(given.shape[1], last)].mean(axis=1, dtype=np.float64))

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        label: str | None = None,
        window: int | None = None,
        against: str = "rounds",
    ) -> "Axes":
        """Draw the mean loss over seeds with its 95 % interval, and return the axes; without axes, on a new figure.

        Drawn is a moving average over ``window`` recorded rounds, a tenth of all if it is None.
        ``omkl.plots.plot_loss`` also draws the mean over all rounds so far, which hides what happens late.
        ``against="bits"`` draws the loss over the bits that a node has sent.
        """
        axes = plots.own_axes(self.title()) if axes is None else axes
        method = self.config.get("label", self.config["method"]["name"])
        return plots.plot_loss(
            axes, self, label=label or short(method), window=window or max(1, len(self.rounds) // 10), against=against
        )

    def summary(self, last: float = 0.1) -> dict[str, float]:
        """Return the mean loss over all recorded rounds and over the last of them, its standard error, and the bits."""
        tail = self.last(self.loss, last)
        spread = tail.std(ddof=1) / len(tail) ** 0.5 if len(tail) > 1 else np.nan
        return {
            "loss": float(self.loss.mean(dtype=np.float64)),
            "final_loss": float(tail.mean()),
            "final_loss_stderr": float(spread),
            "final_accuracy": float(self.last(self.accuracy, last).mean()),
            "bits_per_node_round": float(self.bits.mean() / self.theta.shape[0]),
        }

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write run.json, the curves (Parquet with pyarrow, else JSON lines) and final.npz into ``folder``.

        A result that is there is kept, and this one refused, unless ``overwrite`` says to replace it.
        """
        folder = Path(folder)
        if (folder / "run.json").exists() and not overwrite:
            raise InputError(
                f"{folder} holds a result already; it is kept; give another folder, or replace it with overwrite=True"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").unlink(missing_ok=True)
        _write_curves(folder, self._columns())
        names = [*_FINAL, *(name for name in _OPTIONAL if getattr(self, name) is not None)]
        storage.write(folder / "final.npz", {name: getattr(self, name) for name in names})
        version = FORMAT if self.relevance is None else WITH_RELEVANCE
        # Last, so that a folder that has it is whole.
        storage.write_whole(folder / "run.json", json.dumps({"omkl_result": version, **self.config}, indent=2) + "\n")
        return folder

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        columns = {"seed": np.repeat(self.seeds, len(self.rounds)), "round": np.tile(self.rounds, len(self.seeds))}
        names = _CURVES if self.pooled_loss is None else (*_CURVES, "pooled_loss")
        columns |= {name: getattr(self, name).reshape(-1) for name in names}
        flat = self.weights.reshape(-1, self.weights.shape[-1])
        return columns | {f"weight_{p}": flat[:, p] for p in range(flat.shape[1])}


def order(config: Mapping[str, Any]) -> str:
    """Return what intervals over the seeds of a run leave out, in words."""
    again = "; another order: --shuffle 1 (shuffle=1)" if config.get("is_dealt") else ""
    return f"the same in one order for all seeds: ± does not cover that{again}"


def tail(rounds: int, share: float = 0.1) -> slice:
    """Return the last of so many recorded rounds: a share of them, and one at least."""
    return slice(rounds - max(1, round(share * rounds)), rounds)


def drifted_apart(result: Result) -> str:
    """Return in words how gossip drove nodes apart, if they lose more than by guessing and than at first; else ""."""
    config, count = result.config, result.loss.shape[1]
    guess = config.get("guessing", {}).get("loss")
    if "gamma" not in config["method"] or guess is None or count < FEW_RECORDED:
        return ""
    if config["method"]["loss"]["name"] == "squared":  # of targets that drift those of the end alone may differ little
        guess = max(guess, config["target_variance"])
    tenth = max(1, round(0.1 * count))
    apart, lost = (np.asarray(curve.mean(axis=0), np.float64) for curve in (result.disagreement, result.loss))
    before, after, loss = float(np.median(apart[: count // 2 + 1])), apart[-tenth:].mean(), lost[-tenth:].mean()
    if not (after > GREW * before and loss > WORSE * max(guess, lost[:tenth].mean())):
        return ""
    return (
        f"disagreement grew from {before:.2g} to {after:.2g}, and the final loss is {loss:.3g} where guessing has "
        f"{guess:.3g}: nodes drifted apart"
    )


def worsens(loss: npt.NDArray[Any]) -> bool:
    """Return whether the end of a curve ``(R,)`` is clearly worse than what came before it.

    The last tenth is compared with the other tenths but the first, in which much is learned. It must be larger than
    each of them, and larger than their mean by a fifth and by four times their noise. The noise is told by how much
    tenths differ from the next ones, so that a steady rise is none, and waves, as those of days, are. Of data that stay
    the same one run in a hundred is found, of 20 rounds with heavy tails one in twenty.
    """
    if len(loss) < 10:
        return False
    end = tail(len(loss))
    tenths = np.array([part.mean() for part in np.array_split(loss[: end.start].astype(np.float64), 9)[1:]])
    late, noise = float(loss[end].mean(dtype=np.float64)), float((np.diff(tenths) ** 2).mean() / 2) ** 0.5
    return bool(late > max(1.2 * tenths.mean(), tenths.mean() + 4 * noise, tenths.max()))


def half_shown(values: npt.NDArray[Any]) -> float:
    """Return half of a 95 % interval for people; nan of one value, and without SciPy."""
    with suppress(MissingExtraError):
        return float(metrics.half_interval(values))
    return np.nan


def _figure(value: float, large: float = LARGE) -> str:
    return f"{value:,.0f}" if value >= large else f"{value:.4f}"


def load(folder: str | Path) -> Result:
    """Return the result that ``Result.save`` wrote into ``folder``."""
    folder = Path(folder)
    if not (folder / "run.json").exists():
        other = "; for the file of a model take omkl.load_model" if folder.is_file() else ""
        raise InputError(f"{folder} holds no run.json; pass a folder written by Result.save{other}")
    with storage.refusing(f"{folder} is damaged", "run the simulation again", OSError):
        config = storage.parse_json((folder / "run.json").read_bytes())
        version, arrays = config.pop("omkl_result"), storage.load(folder / "final.npz").arrays
        final = {name: arrays[name] for name in (*_FINAL, *(set(_OPTIONAL) & set(arrays)))}
        columns = _read_curves(folder)
    if version not in (FORMAT, WITH_RELEVANCE):
        raise InputError(f"{folder} has result format {version}; this version reads {WITH_RELEVANCE}; upgrade omkl")
    shape = (len(final["seeds"]), len(final["rounds"]))
    curves = {name: columns[name].reshape(shape) for name in (*_CURVES, "pooled_loss") if name in columns}
    weights = np.stack([columns[f"weight_{p}"] for p in range(final["theta"].shape[2])], axis=-1).reshape(*shape, -1)
    return Result(config=config, weights=weights, **final, **curves)


def _write_curves(folder: Path, columns: dict[str, npt.NDArray[Any]]) -> None:
    table, lines = folder / "metrics.parquet", folder / "metrics.jsonl"
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        lines.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
        table.unlink(missing_ok=True)
    else:
        parquet.write_table(pa.table(columns), table)
        lines.unlink(missing_ok=True)


def _read_curves(folder: Path) -> dict[str, npt.NDArray[Any]]:
    if (folder / "metrics.parquet").exists():
        with extra("results", "pyarrow"):
            from pyarrow import parquet
        table = parquet.read_table(folder / "metrics.parquet")
        return {name: table[name].to_numpy() for name in table.column_names}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    whole = {"seed", "round", "bits", "link_bits"}
    return {
        name: np.array([row[name] for row in rows], dtype=np.int64 if name in whole else np.float32) for name in rows[0]
    }
