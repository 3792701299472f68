"""Twelve stations learn to tell PM2.5 over Beijing from the other readings of the hour. Prints a table, draws a map.

Each learns from its own instruments alone, hour by hour over four years, and whispers some forty bytes an hour to the
stations near it. Every prediction is made before its measurement is learned. What all stations know beforehand, as
they would from earlier years: the mean and deviation of every kind of reading, and 300 rows of readings without PM2.5.
"""

import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

import omkl
from omkl import topology
from omkl.data import known, sensors, status
from omkl.features import stacked
from omkl.methods import Method
from omkl.simulator import engine
from omkl.simulator.measures import pooled_loss

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEEDS = 4
BEST = omkl.Gossip(  # the default has an error of 33 on these hours, which resemble each other; see README.md
    kernels=omkl.gaussian(0.35, 0.7, 1.4), sigma="median", features=256, basis=omkl.Basis(rank=160, rows=300),
    learner=omkl.Shared(prior=100, c=0.05), loss="squared", regularization=0.0, weight_rate=1.0, common_weights=True,
    gamma=0.35, momentum=0.6, quantizer=omkl.Nearest(2.5), pace=omkl.Pace(8, until=8, least=1),
    sending=omkl.Sampled(3, floor=0.3),
)  # fmt: skip
ALONE = omkl.Local(**{one.name: getattr(BEST, one.name) for one in fields(omkl.Local)})  # the same learner
FIRST = np.datetime64("2013-03-01T00", "h")
STATION = "Dongsi"
DAYS = np.datetime64("2014-03-26T00", "h") + np.arange(6 * 24)  # hardly an hour is missing
UNIT = "µg/m³"
TICKS = {24: "a day", 24 * 7: "a week", 24 * 30: "30 days", 24 * 365: "365 days"}
BESIDE = {  # labels of stations that are near to each other
    "Dongsi": ("left", (6, -14)),
    "Guanyuan": ("right", (-6, 8)),
    "Gucheng": ("center", (0, -18)),
    "Tiantan": ("left", (9, -8)),
    "Wanliu": ("right", (-10, -2)),
    "Wanshouxigong": ("center", (-12, -18)),
}

Floats = npt.NDArray[np.float64]


class Air(NamedTuple):
    """The hours in which no station has a missing reading; PM2.5 first, then what it is to be told from."""

    names: list[str]
    places: Floats
    """Latitude and longitude, ``(12, 2)``."""
    graph: topology.Graph
    hours: npt.NDArray[np.datetime64]
    readings: Floats
    """``(T, 12, 17)``."""

    @property
    def deviation(self) -> float:
        """Of PM2.5 over all hours and stations: the error of a constant guess, were it the best one."""
        return float(self.readings[..., 0].std())

    def standardized(self) -> npt.NDArray[np.float32]:
        """Return all readings in units of their deviation over the whole set, as the data set beijing_stations does."""
        mean, deviation = self.readings.mean(axis=(0, 1)), self.readings.std(axis=(0, 1))
        return np.asarray((self.readings - mean) / deviation, dtype=np.float32)


class Seen(NamedTuple):
    """What is recorded of a round: losses and bytes ``(S,)``, predictions ``(S, 12)``."""

    loss: Any
    output: Any
    sent: Any
    all_air: Any
    """The loss of a station's model on the air of all stations."""


def seen(method: Any, given: Any, info: Any, degrees: Any, state: Any) -> Seen:
    output, sent = info.output[..., 0].T, jnp.sum(info.message_bytes, axis=0)
    return Seen(jnp.mean(info.loss, axis=0), output, sent, pooled_loss(method, given, info))


def read_air(first: int | None = None) -> Air:
    """Return the air of the first hours, or of all; where there is none, leave with a line that says what to do."""
    found = status("beijing_stations")
    if found.place is None:
        sys.exit("the air of Beijing (UCI 501) is not here; put the files that `omkl data` tells of in $OMKL_DATA")
    contents = [file.read(Path(found.place)) for file in known("beijing_stations").files]
    hours = sensors.beijing_hours(contents)
    whole = np.flatnonzero(np.isfinite(hours).all(axis=(1, 2)))[:first]
    rows = [line.split(",") for line in contents[-1].decode().split()[1:]]
    places = np.array([row[1:] for row in rows], dtype=np.float64)
    return Air([row[0] for row in rows], places, sensors.beijing_graph(contents), FIRST + whole, hours[whole])


def learn(air: Air, seeds: int) -> list[Seen]:
    """Return what the stations predicted, as a network and each alone, by the same features."""
    values, graph = air.standardized(), topology.build(air.graph)
    X, y = values[..., 1:], values[..., :1]
    drawn = [BEST.bank.draw(X.shape[-1], seed, X) for seed in range(seeds)]
    features = stacked(drawn)
    methods: list[Method] = [BEST.on(graph), ALONE]
    cases = [engine.Case(method, (graph,)) for method in methods]
    return [record for _, record in engine.run(engine.Problem(X, y, features, list(range(seeds))), cases, seen)]


def best_line(air: Air) -> float:
    """Return the error of the best linear model in hindsight, one for all stations."""
    rows = air.standardized().reshape(-1, air.readings.shape[-1]).astype(np.float64)
    inputs = np.concatenate([rows[:, 1:], np.ones((len(rows), 1))], axis=1)
    residual = rows[:, 0] - inputs @ np.linalg.lstsq(inputs, rows[:, 0])[0]
    return float(air.deviation * np.sqrt(np.mean(residual**2)))


def errors(air: Air, record: Seen) -> Floats:
    """Return the root mean square error at every station."""
    apart = record.output.astype(np.float64) - air.standardized()[:, None, :, 0]
    return np.asarray(air.deviation * np.sqrt(np.mean(apart**2, axis=(0, 1))))


def so_far(air: Air, loss: Any) -> Floats:
    """Return the root mean square error over all hours so far, from losses ``(T, S)``."""
    return np.asarray(air.deviation * np.sqrt(omkl.metrics.progressive(loss.mean(axis=1, dtype=np.float64))))


def draw(air: Air, together: Seen, alone: Seen) -> "Figure":
    """Return the map, beside it the error over time and some days at one station."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(12.5, 6.4), layout="constrained")
    axes = drawn.subplot_mosaic([["map", "errors"], ["map", "days"]], width_ratios=[1.12, 1])
    draw_map(axes["map"], air, errors(air, together))
    draw_errors(axes["errors"], air, together, alone)
    draw_days(axes["days"], air, together, alone)
    for one in axes.values():
        one.grid(alpha=0.3)
        one.spines[["top", "right"]].set_visible(False)
    return drawn


def draw_map(axes: "Axes", air: Air, each: Floats) -> None:
    from matplotlib.patheffects import withStroke

    y, x = air.places.T
    for i, j in air.graph.edges:
        axes.plot(x[[i, j]], y[[i, j]], color="0.75", linewidth=1, zorder=1)
    dots = axes.scatter(x, y, c=each, s=130, cmap="viridis_r", edgecolor="white", linewidth=1.2, zorder=2)
    for name, place in zip(air.names, zip(x, y, strict=True), strict=True):
        side, shift = BESIDE.get(name, ("left", (9, -3)))
        label = axes.annotate(name, place, shift, textcoords="offset points", fontsize=9, ha=side, zorder=3)
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
    degree = sensors.KM * np.cos(np.radians(y.mean()))  # of longitude, in km
    end, top = x.mean() + 5 / degree, y.max()
    axes.plot([end - 10 / degree, end], [top, top], color="0.2", linewidth=2, solid_capstyle="butt")
    axes.annotate("10 km", (end - 5 / degree, top), (0, 5), textcoords="offset points", fontsize=8, ha="center")
    axes.set_aspect(sensors.KM / degree)
    axes.margins(0.13, 0.08)
    axes.set(xlabel="longitude, degrees east", ylabel="latitude, degrees north")
    axes.set_title("The network's error at each station; links are gossip")
    axes.figure.colorbar(dots, ax=axes, shrink=0.6, label=f"root mean square error, {UNIT}")


def draw_errors(axes: "Axes", air: Air, together: Seen, alone: Seen) -> None:
    hours = np.arange(1, len(air.hours) + 1)
    day = min(24, len(hours))
    for name, record, color in (("alone", alone, "C1"), ("network", together, "C0")):
        for which, loss, style in (("air of all twelve", record.all_air, "--"), ("own air", record.loss, "-")):
            axes.plot(hours[day:], so_far(air, loss)[day:], style, color=color, label=f"{name}, {which}")
    guess = np.mean(air.standardized()[:, None, :, 0] ** 2, axis=2)
    axes.plot(hours[day:], so_far(air, guess)[day:], ":", color="0.4", label="a constant guess")
    axes.set(xscale="log", yscale="log", xlabel="hours learned", ylabel=f"error so far, {UNIT}", ylim=(11, None))
    axes.set_xticks(list(TICKS), list(TICKS.values()))
    axes.set_yticks([20, 30, 40, 60, 80], ["20", "30", "40", "60", "80"])
    axes.minorticks_off()
    axes.set_title("What a station knows")
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower right")


def draw_days(axes: "Axes", air: Air, together: Seen, alone: Seen) -> None:
    where, at = air.names.index(STATION), {hour: t for t, hour in enumerate(air.hours)}
    rows = np.array([at.get(hour, -1) for hour in DAYS])
    pm = air.readings[..., 0]
    curves = {
        "measured": (pm[:, where], "0.15"),
        "predicted alone": (pm.mean() + air.deviation * alone.output[:, 0, where], "C1"),
        "predicted as a network": (pm.mean() + air.deviation * together.output[:, 0, where], "C0"),
    }
    for name, (values, color) in curves.items():
        axes.plot(DAYS, np.where(rows < 0, np.nan, values[rows]), color=color, label=name, linewidth=1.5)
    axes.set_xticks(DAYS[::24], [f"{day.astype(object):%d %b}" for day in DAYS[::24]])
    axes.set_ylabel(f"PM2.5, {UNIT}")
    axes.set_title(f"Six days at {STATION} in {DAYS[0].astype(object):%Y}, hour by hour")
    axes.legend(frameon=False, fontsize=8)


def table(air: Air, together: Seen, alone: Seen) -> str:
    """Return the errors, and what they cost."""
    head = f"{'':<22} {'own air':>10} {'first 30 days':>14} {'air of all twelve':>18} {'bytes an hour':>14}"
    lines = [head]
    for name, record in (("as a network", together), ("every station alone", alone)):
        own, other = (so_far(air, loss) for loss in (record.loss, record.all_air))
        month = own[min(24 * 30, len(own)) - 1]
        sent = record.sent.mean() / len(air.names)
        lines.append(f"{name:<22} {own[-1]:10.1f} {month:14.1f} {other[-1]:18.1f} {sent:14.1f}")
    lines.append(f"{'best line *':<22} {best_line(air):10.1f}")
    lines.append(f"{'best constant guess *':<22} {air.deviation:10.1f}")
    return "\n".join([*lines, "* in hindsight, one for all stations"])


def main(out: Path, hours: int | None = None, seeds: int = SEEDS) -> tuple[Air, Seen, Seen]:
    """Print the table, write the map, and return the air and what was recorded, as a network and alone."""
    started, air = time.perf_counter(), read_air(hours)
    first, last = (f"{hour.astype(object):%B %Y}" for hour in air.hours[[0, -1]])
    print(f"PM2.5 from the other readings of the hour: {len(air.names)} stations, {len(air.graph.edges)} links,")
    print(f"{len(air.hours):,} hours from {first} to {last}, {seeds} draws of features.")
    print(f"Root mean square error in {UNIT}, every hour scored before it is learned:\n")
    together, alone = learn(air, seeds)
    print(table(air, together, alone))
    out.mkdir(parents=True, exist_ok=True)
    draw(air, together, alone).savefig(out / "beijing.png", dpi=110)
    print(f"\nmap: {out / 'beijing.png'}   ({time.perf_counter() - started:.0f} s)")
    return air, together, alone


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/beijing"))
