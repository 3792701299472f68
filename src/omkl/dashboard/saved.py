"""A saved result as events: its curves are means over nodes, so of single nodes there is the end alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from omkl import storage
from omkl import topology as topologies
from omkl.dashboard import events
from omkl.dashboard.events import UP, Event, all_digits, digits
from omkl.dashboard.layout import piece, spread_out, within
from omkl.dashboard.recorder import MOST_DRAWN, MOST_FRAMES, SPREAD, ending, recent, settings_of, title_of, window_of
from omkl.dashboard.sources import Read, failed
from omkl.errors import InputError, MissingExtraError
from omkl.methods import bank
from omkl.topology import Graph

if TYPE_CHECKING:
    from omkl.simulator import Result

RESULT = "run.json"
TOGETHER = 50  # lines that are read at a time


class Saved:
    """The events of a folder that ``Result.save`` wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @cached_property
    def _lines(self) -> list[str]:
        from omkl.simulator import load

        with storage.refusing(f"{self._folder} holds no run that can be shown", "simulate it again"):
            return [events.line(event).rstrip("\n") for event in replayed(load(self._folder))]

    def read(self, cursor: int) -> Read:
        """Return the next lines; of a result that cannot be read, why not."""
        try:
            every = self._lines
        except (InputError, MissingExtraError) as error:
            return failed(str(error), cursor)
        lines = every[cursor : cursor + TOGETHER]
        return Read(lines, cursor + len(lines), cursor + len(lines) == len(every))

    def about(self) -> dict[str, Any]:
        """Return the name of the folder: to read the whole result for a list would take long."""
        return {"title": self._folder.name, "source": "simulation", "live": False}


def replayed(result: "Result") -> Iterator[Event]:
    """Yield the events of a result, means over its seeds; the spread is that over seeds."""
    config, graph = result.config, replace(_graph(result.config), names=result.config.get("names"))
    drawn = piece(graph, MOST_DRAWN) if len(graph.edges) else np.arange(min(graph.nodes, MOST_DRAWN))
    edges = within(graph, drawn)
    yield events.network(
        source="simulation",
        title=title_of(config),
        nodes=graph.nodes,
        ids=[graph.called(node) for node in drawn],
        positions=spread_out(len(drawn), edges) if graph.positions is None else graph.positions[drawn],
        edges=edges.tolist(),
        kernels=_labels(result),
        rounds=config["rounds"],
        loss=config["method"]["loss"]["name"],
        window=window_of(config),
        disagreement="distance from the network's mean model",
        states=[UP],
        settings=settings_of(config)
        | ({"seed": f"{result.seeds[0]} to {result.seeds[-1]}, their mean"} if len(result.seeds) > 1 else {})
        | {"single nodes": "not recorded; simulate with --events"},
    )
    theta = result.theta[drawn, 0]
    apart = np.sqrt(np.sum((theta - result.theta[:, 0].mean(axis=0)) ** 2, axis=(1, 2, 3)))
    losses = np.array(result.loss, dtype=np.float64)
    for k in range(1, losses.shape[1]):
        losses[:, k] = recent(losses[:, k - 1], losses[:, k], k + 1)
    yield from _frames(result, losses, len(drawn), len(edges), apart)
    yield events.end(0.0, ending(config["rounds"], result.summary()["final_loss"]))


def _frames(result: "Result", smooth: Any, nodes: int, links: int, apart: Any) -> Iterator[Event]:
    count = len(result.rounds)
    total = np.cumsum(result.bits.mean(axis=0)) * result.config["record_every"]
    shown = sorted({*range(0, count, -(-count // MOST_FRAMES)), count - 1})
    for first, k in zip([0, *(k + 1 for k in shown[:-1])], shown, strict=True):
        losses = smooth[:, k]
        empty, last = [None] * nodes, k == count - 1
        sent = float(result.bits[:, first : k + 1].mean()) / result.config["nodes"]
        yield {
            "event": "frame",
            "round": int(result.rounds[k]) + 1,
            "time": None,
            "loss": digits(float(losses.mean())),
            "spread": all_digits(np.percentile(losses, SPREAD)),
            "disagreement": digits(float(result.disagreement[:, k].mean())),
            "weights": all_digits(result.weights[:, k].mean(axis=0)),
            "bits": digits(sent),
            "total": round(float(total[k])),
            "alive": nodes,
            "node": {
                "loss": empty,
                "disagreement": all_digits(apart) if last else empty,
                "bits": empty,
                "alive": [1] * nodes,
                "round": [int(result.rounds[k]) + 1] * nodes,
                "weights": None,
            },
            "edge": {"bits": [None] * links, "state": [0] * links},
        }


def _labels(result: "Result") -> list[str]:
    """Return what the weights are of, from what a result holds of its method."""
    method = result.config["method"]
    kernels = [(kernel["name"], kernel["sigma"]) for kernel in method["kernels"]]
    priors = (method.get("learner") or {}).get("priors", ())
    return bank.labels(kernels, result.theta.shape[2], [f"prior {one:g}" for one in priors])


def _graph(config: Mapping[str, Any]) -> Graph:
    """Return the graph of a run, without links where the record has none."""
    record, nodes = config["topology"], config["nodes"]
    if isinstance(record, str):
        return topologies.build(record, nodes, connected=False).graph
    if "graphs" in record:
        turns = [_graph({"topology": one, "nodes": nodes}).edges for one in record["graphs"]]
        return Graph(nodes, np.concatenate(turns), record["name"])
    edges = np.array(record.get("edges", []), dtype=np.int64).reshape(-1, 2)
    return Graph(nodes, edges, record["name"], record.get("positions") and np.array(record["positions"]))
