"""Files that version 0.1 wrote, which every later one reads: checkpoints, models, saved runs, estimators."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import parquet

import omkl
from omkl import topology
from omkl.learners import Shared
from omkl.methods import Gossip
from omkl.node.config import Member, NetworkConfig
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions, Network
from omkl.sklearn import OMKLClassifier, OMKLRegressor
from tests.oracles import arithmetic

FOLDER = Path(__file__).with_name("files")
# In headers: of the machine, frames whose levels rounding may flip, and a text for people, which nothing reads. Until
# 0.2.0.dev3 a label called the paper's preset "letter".
VARY = ("versions", "recent", "label")
ROUNDS, NODES = 12, 3
CALIBRATED: dict[str, Any] = {"kernels": omkl.gaussian(0.5, 1), "features": 8, "sigma": "median"} | {
    "basis": omkl.Basis(rank=6, rows=20), "regularization": 0.0, "learner": Shared(), "weight_rate": 1.0,
    "quantizer": omkl.Nearest(2.5), "gamma": 0.3,
}  # fmt: skip
METHODS: dict[str, Gossip] = {
    "paper": Gossip(features=4, eta=0.2, gamma=0.5),
    "softmax": Gossip(features=4, eta=0.2, gamma=0.5, loss=omkl.Softmax(classes=3)),
    "landmarks": omkl.recommended(
        kernels=omkl.gaussian(0.5, 1),
        basis=omkl.Landmarks(rank=6, rows=20),
        gamma=0.3,
        pace=omkl.Pace(2, until=4, least=1),
    ),
    "calibrated": Gossip(**CALIBRATED, momentum=0.4, common_weights=True, sending=omkl.Sampled(1.5, floor=0.4)),
}


def inputs(*shape: int) -> np.ndarray:
    """Return inputs of two columns."""
    return arithmetic.normals("files", *shape, 2).astype(np.float32)


def labels(x: np.ndarray, classes: int = 2) -> np.ndarray:
    """Return what there is to learn: whether the signs of the columns agree, or how many are positive."""
    return np.where(x[..., 0] * x[..., 1] > 0, 1, -1) if classes == 2 else (x > 0).sum(axis=-1)


def network(name: str, standardize: bool) -> NetworkConfig:
    """Return a network of three nodes on a path."""
    method = METHODS[name]
    rows = inputs(20) if method.bank.basis else None
    return NetworkConfig(
        name="n", inputs=2, method=method, seed=3, topology=topology.build("path", NODES),
        members=tuple(Member(id="abc"[k], listen=f"tcp/h:{k + 1}") for k in range(NODES)),
        timing=Timing(deadline=4.0, patience=0.5), calibration=rows, standardize=standardize,
    )  # fmt: skip


@dataclass(frozen=True)
class Node:
    """The checkpoint of the middle node of a network, in the middle of its stream."""

    name: str
    standardize: bool = False

    def write(self, folder: Path) -> None:
        """Run the network, and save the node."""
        config, x = network(self.name, self.standardize), inputs(ROUNDS, NODES)
        y = labels(x, 3 if self.name == "softmax" else 2)
        run = Network(Conditions(delay=0.01, jitter=0.02))
        for k, id in enumerate(config.ids):
            run.join(Protocol(config.role(id), 100 + k, 0.0))
            run.feed(id, iter(zip(x[:, k], y[:, k], strict=True)))
        run.run(0.3)
        node = run.nodes["b"]
        node.observe([1.0, 2.0], None, run.now)
        checkpoint.save(folder / "b.npz", node, clean=True)

    def read(self, folder: Path) -> dict[str, Any]:
        """Return what the restored node knows, and what it predicts."""
        role = network(self.name, self.standardize).role("b")
        node = checkpoint.restore(folder / "b.npz", role, 7, 0.0)
        copies = {peer: float(link.copy.sum()) for peer, link in node.links.items()}
        answers = {"outputs": node.learning.predict(inputs(6)).tolist(), "copies": copies}
        return answers | {"round": node.round, "boot": node.neighbors.boot, "waiting": len(node.waiting)}


@dataclass(frozen=True)
class Run:
    """A saved simulation, and the model of one of its nodes."""

    name: str
    standardize: bool = False
    parquet: bool = True

    def write(self, folder: Path) -> None:
        """Simulate, and save."""
        x = inputs(ROUNDS, NODES)
        y = labels(x, 3 if self.name == "softmax" else 2)
        result = omkl.simulate((x, y), "path", method=METHODS[self.name], seeds=2, standardize=self.standardize)
        hidden = {} if self.parquet else {"pyarrow": None}
        kept = {name: sys.modules.get(name) for name in hidden}
        sys.modules.update(hidden)  # type: ignore[arg-type]
        try:
            result.save(folder / "run")
        finally:
            sys.modules.update({name: module for name, module in kept.items() if module is not None})
        result.model(seed=1, node=2).save(folder / "model.npz")

    def read(self, folder: Path) -> dict[str, Any]:
        """Return curves of the run, and what its models and the saved one predict."""
        result, model = omkl.load(folder / "run"), omkl.load_model(folder / "model.npz")
        return {
            "loss": result.loss.tolist(),
            "bits": result.bits.tolist(),
            "weights": result.weights[:, -1].tolist(),
            "outputs": result.model(seed=1, node=2).decision_function(inputs(6)).tolist(),
            "model": model.decision_function(inputs(6)).tolist(),
        }


@dataclass(frozen=True)
class OfTable:
    """A saved simulation of a data frame, and the model of one of its nodes, which knows the columns."""

    def write(self, folder: Path) -> None:
        """Simulate, and save."""
        x = inputs(ROUNDS * NODES)
        rows = self._rows(x).assign(kind=np.where(labels(x) > 0, "yes", "no"))
        rows.loc[4, "warm"] = np.nan
        result = omkl.simulate(rows, "path", NODES, METHODS["landmarks"], target="kind", seeds=2)
        result.save(folder / "run")
        result.model(seed=1, node=2).save(folder / "model.npz")

    def read(self, folder: Path) -> dict[str, Any]:
        """Return what the saved model predicts for other rows, and the loss of the run."""
        result, model, rows = omkl.load(folder / "run"), omkl.load_model(folder / "model.npz"), self._rows(inputs(6))
        answered = {
            "model": model.decision_function(rows).tolist(),
            "yes": [int(one == "yes") for one in model.predict(rows)],
        }
        return answered | {"loss": result.loss.tolist()}

    def _rows(self, x: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame({"warm": x[:, 0], "wind": np.where(x[:, 1] > 0, "north", "south")})


@dataclass(frozen=True)
class Estimator:
    """A saved estimator that has seen so many rows: fewer than it calibrates on, or more."""

    kind: type[OMKLClassifier] | type[OMKLRegressor]
    rows: int
    nodes: int = 1

    def write(self, folder: Path) -> None:
        """Learn, and save."""
        x = inputs(self.rows)
        estimator: Any = self.kind(warmup=24, rank=6, kernels=(0.5, 1.0), nodes=self.nodes)
        if self.kind is OMKLClassifier:
            estimator.partial_fit(x, labels(x), classes=[-1, 1])
        else:
            estimator.partial_fit(x, x[:, 0] * x[:, 1])
        estimator.save(folder / "estimator.npz")

    def read(self, folder: Path) -> dict[str, Any]:
        """Return what the estimator predicts, and what it does after some more rows."""
        estimator: Any = self.kind.load(folder / "estimator.npz")
        before = self._outputs(estimator)
        more = inputs(60)[40:]
        estimator.partial_fit(more, labels(more) if self.kind is OMKLClassifier else more[:, 0] * more[:, 1])
        return {"outputs": before, "after": self._outputs(estimator)}

    def _outputs(self, estimator: Any) -> list[float]:
        ask = estimator.predict_proba if self.kind is OMKLClassifier else estimator.predict
        found: list[float] = np.asarray(ask(inputs(6)), dtype=np.float64).tolist()
        return found


CASES: dict[str, Node | Run | OfTable | Estimator] = {
    "node-paper": Node("paper"),
    "node-softmax-standardized": Node("softmax", standardize=True),
    "node-calibrated": Node("calibrated"),
    "node-landmarks": Node("landmarks"),
    "run-paper": Run("paper"),
    "run-landmarks": Run("landmarks"),
    "run-softmax-standardized": Run("softmax", standardize=True),
    "run-calibrated-lines": Run("calibrated", parquet=False),
    "run-table": OfTable(),
    "classifier-early": Estimator(OMKLClassifier, 10),
    "classifier": Estimator(OMKLClassifier, 40),
    "classifier-network": Estimator(OMKLClassifier, 40, nodes=3),
    "regressor": Estimator(OMKLRegressor, 40),
}


def versions() -> list[Path]:
    """Return a folder for each version whose files are kept, the newest last."""
    return sorted((path for path in FOLDER.iterdir() if path.is_dir()), key=lambda path: order(path.name))


def order(version: str) -> tuple[list[int], float]:
    """Return what versions are sorted by: 0.2.0.dev1 comes before 0.2.0."""
    release, _, dev = version.partition(".dev")
    return [int(part) for part in release.split(".")], float(dev or "inf")


def layout(folder: Path) -> dict[str, Any]:
    """Return the files of a folder, what their headers say, and the types and shapes of what else is in them."""
    return {str(path.relative_to(folder)): _inside(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _inside(path: Path) -> Any:
    if path.suffix == ".json":
        return dict(_told(json.loads(path.read_text())))
    if path.suffix == ".jsonl":
        return list(json.loads(path.read_text().splitlines()[0]))
    if path.suffix == ".parquet":
        return str(parquet.read_schema(path).remove_metadata())
    with np.load(path, allow_pickle=False) as file:
        header = file.get("header")
        arrays = {name: f"{file[name].dtype} {file[name].shape}" for name in sorted(file.files) if name != "header"}
    text = "{}" if header is None else header.tobytes().decode() if header.dtype == np.uint8 else str(header)
    return {"header": dict(_told(json.loads(text))), "arrays": arrays}


def _told(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a header says by its path; of numbers that are computed, that they are there."""
    if isinstance(thing, dict | list) and not path.endswith(VARY):
        for key, value in thing.items() if isinstance(thing, dict) else enumerate(thing):
            yield from _told(value, f"{path}.{key}".removeprefix("."))
    else:
        yield path, "some" if path.endswith(VARY) or isinstance(thing, float) else thing


def answers(version: Path) -> dict[str, Any]:
    """Return what the files of a version were seen to say."""
    read: dict[str, Any] = json.loads((version / "answers.json").read_text())
    return read


def freeze() -> None:
    """Write the files of this version, and what they say. What another version wrote is never written again."""
    folder = FOLDER / version("omkl")
    if folder.exists():
        sys.exit(f"{folder.name} is frozen, and what it wrote stays; raise the version in pyproject.toml first")
    told = {}
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "made"
        for name, case in CASES.items():
            (made / name).mkdir(parents=True)
            case.write(made / name)
            told[name] = case.read(made / name)
        (made / "answers.json").write_text(json.dumps(told) + "\n")
        shutil.move(made, folder)
