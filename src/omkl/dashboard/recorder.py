"""A simulation as events: who looks at it, and writes down what the page is to show."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import numpy as np
import numpy.typing as npt

from omkl.dashboard import events
from omkl.dashboard.events import DOWN, UP, all_digits, digits
from omkl.dashboard.layout import Floats, piece, spread_out, within

if TYPE_CHECKING:
    from omkl.simulator.watching import Begun, Look, NodeMetrics, Plan

MOST_FRAMES = 400  # of a run
MOST_DRAWN = 150  # nodes; of more a piece is drawn
MOST_ASKED = 1000  # nodes whose losses tell the spread
RECENT = 25  # recorded rounds over which losses are averaged, about
TAIL = 0.1  # of the recorded rounds, over which a result has its final loss
UNUSED = "not used in this round"
SPREAD = (10, 90)  # percent


class Recorder:
    """Writes a run's events into a folder, for ``omkl dashboard FOLDER``; pass it as ``simulate(watch=...)``.

    The dashboard may be looking while the run goes on. As a context it also notes how a run failed.

    Parameters
    ----------
    folder
        Where to write ``events.jsonl``; it is made, and an earlier one is replaced.
    method
        What to call the method; None calls it as the result does.

    Examples
    --------
    >>> import omkl, tempfile
    >>> from omkl.dashboard import Recorder
    >>> with tempfile.TemporaryDirectory() as folder, Recorder(folder) as recorder:
    ...     result = omkl.simulate("banana", "ring", nodes=20, method="paper", rounds=40, watch=recorder)
    ...     print(recorder.file.read_text().count('"event":"frame"'))
    40
    """

    def __init__(self, folder: Path | str, method: str | None = None) -> None:
        self.file, self._method = Path(folder) / events.FILE, method
        self._out: TextIO | None = None
        self._is_begun = False
        self._began, self._seen, self._total = time.monotonic(), 0, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is not None:
            text = "interrupted" if kind is KeyboardInterrupt else str(error) or repr(error)
            self._write(events.end(self._time, text, failed=True))
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def begin(self, begun: "Begun") -> "Plan":
        """Write what there is, and return what to look at."""
        from omkl.simulator.watching import Plan

        config, graph = begun.config, begun.graph
        self._drawn = piece(graph, MOST_DRAWN)
        self._edges = within(graph, self._drawn)
        places = spread_out(len(self._drawn), self._edges) if graph.positions is None else graph.positions[self._drawn]
        asked = np.unique(np.linspace(0, graph.nodes - 1, MOST_ASKED).astype(int))
        self._fails = config["faults"] is not None
        self._links, self._nodes, self._every = begun.links, config["nodes"], config["record_every"]
        self._last = config["rounds"] // self._every * self._every - 1
        recorded = config["rounds"] // self._every
        self._before_tail, self._tail = recorded - max(1, round(TAIL * recorded)), 0.0
        self._mean, self._losses = 0.0, np.zeros(len(self._drawn) + len(asked))
        self._began = time.monotonic()
        self._write(
            events.network(
                source="simulation",
                title=title_of(config, self._method),
                nodes=graph.nodes,
                ids=[graph.called(node) for node in self._drawn],
                positions=places,
                edges=self._edges.tolist(),
                kernels=begun.kernels,
                rounds=config["rounds"],
                loss=config["method"]["loss"]["name"],
                window=window_of(config),
                disagreement="distance from the network's mean model",
                states=[UP, *([DOWN] if self._fails else [UNUSED] if has_turns(config) else [])],
                settings=settings_of(config),
            )
        )
        self._pause, self._shown = max(1, -(-config["rounds"] // MOST_FRAMES)), 0
        self._sent: list[Floats] = []  # bytes since the last frame, by all nodes and by those drawn
        self._own: list[Floats] = []
        return Plan([*self._drawn, *asked], self._pause)

    def see(self, look: "Look") -> None:
        """Take note of some rounds; write a frame if enough are past since the last."""
        network, nodes = look.network, look.nodes
        for mean, losses in zip(np.asarray(network.loss)[:, 0], np.asarray(nodes.loss), strict=True):
            self._seen += 1
            self._mean = recent(self._mean, float(mean), self._seen)
            self._tail += float(mean) * (self._seen > self._before_tail)
            self._losses = recent(self._losses, losses, self._seen)
        self._sent += [np.asarray(network.sent, dtype=np.float64)[:, :1]]
        self._own += [np.asarray(nodes.sent)[:, : len(self._drawn)]]
        at = int(look.rounds[-1])
        if at + 1 >= self._shown + self._pause or at == self._last:
            self._show(at, network, nodes)
        if at == self._last:
            self._write(events.end(self._time, ending(at + 1, self._tail / (self._seen - self._before_tail))))
            self.close()

    def _show(self, at: int, network: Any, nodes: "NodeMetrics") -> None:
        """Write a frame of all since the last."""
        drawn, (awake, up) = len(self._drawn), self._awake(at)
        sent, own = (8 * np.concatenate(parts) for parts in (self._sent, self._own))
        own, self._sent, self._own, self._shown = own.mean(axis=0), [], [], at + 1
        self._total += self._every * float(sent.sum())
        self._write({
            "event": "frame",
            "round": at + 1,
            "time": digits(self._time),
            "loss": digits(self._mean),
            "spread": all_digits(np.percentile(self._losses[drawn:], SPREAD)),
            "disagreement": digits(float(network.disagreement[-1, 0])),
            "weights": all_digits(network.weights[-1, 0]),
            "bits": digits(float(sent.mean()) / self._nodes),
            "total": round(self._total),
            "alive": int(awake.sum()),
            "node": {
                "loss": all_digits(self._losses[:drawn]),
                "disagreement": all_digits(nodes.disagreement[-1, :drawn]),
                "bits": all_digits(own),
                "alive": awake.astype(int).tolist(),
                "round": [at + 1] * drawn,
                "weights": [all_digits(one) for one in nodes.weights[-1, :drawn]],
            },
            "edge": {
                "bits": all_digits(own[self._edges].sum(axis=1) * up),
                "state": (~up).astype(int).tolist(),
            },
        })  # fmt: skip
        if self._fails:
            self._note_faults(at, awake, up)

    def _awake(self, at: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which of the nodes drawn are awake, and which of their links are up."""
        own = np.stack([self._drawn, self._drawn], axis=1)
        both = self._links(at, np.concatenate([own, self._drawn[self._edges]]))
        return both[: len(own)], both[len(own) :]

    def _note_faults(self, at: int, awake: npt.NDArray[np.bool_], up: npt.NDArray[np.bool_]) -> None:
        counts = {"asleep": int((~awake).sum()), "links down": int((~up).sum())}
        if any(counts.values()):
            text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
            self._write(events.note(at + 1, self._time, "fault", text))

    @property
    def _time(self) -> float:
        return time.monotonic() - self._began

    def _write(self, event: events.Event) -> None:
        if self._out is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._out = self.file.open("a" if self._is_begun else "w", encoding="utf-8")
            self._is_begun = True
        self._out.write(events.line(event))
        self._out.flush()


def recent(before: Any, value: Any, seen: int) -> Any:
    """Return the mean of recent values, given that of those before the last and how many have been seen."""
    return before + (value - before) / min(seen, RECENT)


def ending(rounds: int, loss: float) -> str:
    """Return how a run ended, in words: the loss as the command prints it."""
    return f"{rounds:,} round{'s'[: rounds != 1]}; final loss {loss:.4g} over the last tenth"


def window_of(config: Mapping[str, Any]) -> str:
    """Return over what the losses shown are averaged, in words."""
    rounds = RECENT * config["record_every"]
    return (
        f"mean over the last {rounds:,} rounds, about" if config["rounds"] > rounds else "mean over the rounds so far"
    )


def has_turns(config: Mapping[str, Any]) -> bool:
    """Return whether several graphs take turns."""
    return isinstance(config["topology"], dict) and "graphs" in config["topology"]


def title_of(config: Mapping[str, Any], method: str | None = None) -> str:
    """Return what a run is headed by."""
    data, graph = config["data"], config["topology"]
    stream = data if isinstance(data, str) else data.get("name", "a stream")
    network = graph if isinstance(graph, str) else graph["name"]
    nodes = f"{config['nodes']:,} node{'s'[: config['nodes'] != 1]}"
    called = method or config.get("label", config["method"]["name"])
    return f"{called} on {stream}: {network} of {nodes}"


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return what a reader wants to know of a run, in words."""
    method = config["method"]
    shown = {"nodes": f"{config['nodes']:,}", "rounds": f"{config['rounds']:,}", "seed": str(config["seed"])}
    if config["seeds"] > 1:
        shown["seed"] += f", the first of {config['seeds']}"
    if isinstance(config["data"], str):
        shown["data"] = config["data"]
    for part in ("learner", "quantizer"):
        if isinstance(method.get(part), dict):
            shown[part] = _words(method[part])
    has_landmarks = (method.get("basis") or {}).get("name") == "landmarks"  # in place of random features
    for part in (*(() if method.get("learner") else ("eta",)), "gamma", *(() if has_landmarks else ("features",))):
        if isinstance(method.get(part), int | float | str):
            shown[part] = str(method[part])
    if config["faults"]:
        shown["faults"] = _words(config["faults"]).removeprefix("faults, ")
    return shown


def _words(table: Mapping[str, Any]) -> str:
    rest = (f"{key} {value:g}" for key, value in table.items() if type(value) in (int, float))
    return ", ".join([table["name"], *rest])
