"""Loss curves of the paper's preset and of what it is compared with, of short simulations that nothing may change."""

import json
from pathlib import Path

import numpy as np

import omkl
from omkl.methods import Method
from omkl.topology import build
from tests import numpy_run
from tests.oracles import arithmetic

FILE = Path(__file__).with_name("losses.json")
ROUNDS, NODES = 60, 5
CASES: dict[str, tuple[Method, str]] = {
    "paper": (omkl.paper(), "path"),
    "paper, larger steps": (omkl.Gossip(eta=0.5, gamma=0.5), "path"),
    "paper, exact": (omkl.Gossip(eta=0.5, gamma=0.5, quantizer=None), "ring"),
    "paper, nearest": (omkl.Gossip(eta=0.5, gamma=0.3, quantizer=omkl.Nearest(2.5)), "star"),
    "paper, squared": (omkl.Gossip(eta=0.1, gamma=0.5, loss="squared"), "ring"),
    "complete": (omkl.Complete(eta=0.5), "complete"),
    "choco": (omkl.Choco(eta=0.5, gamma=0.5), "ring"),
    "local": (omkl.Local(eta=0.5), "path"),
    "domkl": (omkl.DOMKL(), "ring"),
    "adaraker": (omkl.AdaRaker(), "path"),
}


def stream() -> tuple[np.ndarray, np.ndarray]:
    """Return inputs ``(T, J, 2)`` and labels ``(T, J)``."""
    x = arithmetic.normals("stream", ROUNDS, NODES, 2).astype(np.float32)
    return x, np.where(x[..., 0] * x[..., 1] > 0, 1, -1).astype(np.float32)


def in_numpy(name: str) -> np.ndarray:
    """Return the losses of a case by NumPy, ``(T, J)``."""
    method, graph = CASES[name]
    return np.asarray(numpy_run.run(method, *stream(), build(graph, NODES), seed=1).loss, dtype=np.float32)


def in_jax(name: str) -> np.ndarray:
    """Return the mean loss of a case by the simulator, ``(T,)``."""
    method, graph = CASES[name]
    return np.asarray(omkl.simulate(stream(), graph, method=method, seed=1).loss[0])


def key() -> str:
    """Return the arithmetic of this process, and its BLAS by name."""
    return f"{arithmetic.key()}, {arithmetic.blas()}"


def told() -> str:
    """Return the losses of all cases by NumPy, under the arithmetic of this process."""
    return json.dumps({name: in_numpy(name).tobytes().hex() for name in CASES})


def frozen() -> dict[str, dict[str, np.ndarray]]:
    """Return the frozen losses, by arithmetic and case."""
    read = json.loads(FILE.read_text())
    return {
        key: {name: np.frombuffer(bytes.fromhex(text), np.float32).reshape(ROUNDS, NODES) for name, text in one.items()}
        for key, one in read.items()
    }


def freeze() -> None:
    """Write the losses of today, under every arithmetic that this machine has."""
    found = {key: json.loads(text) for key, text in arithmetic.under_each("losses").items()}
    FILE.write_text(json.dumps(found, indent=0) + "\n")
