"""Decentralized online multi-kernel learning.

Three doors: ``omkl.simulate`` for whole networks, a node for every device, estimators for one process. The algorithm
itself is in ``omkl.algorithm``, the file to read first.
"""

from typing import TYPE_CHECKING, Any

from omkl import topology
from omkl.compressors import RandK, Sign, TopK
from omkl.errors import InputError, MissingExtraError
from omkl.features import Kernel, cauchy, gaussian, laplacian
from omkl.learners import SGD
from omkl.losses import Logistic, Softmax, Squared
from omkl.methods import Choco, Complete, Gossip, Local
from omkl.model import Model, load_model
from omkl.quantizers import QSGD, Exact, Nearest
from omkl.theory import explain
from omkl.topology import Faults

if TYPE_CHECKING:
    from omkl.simulator import DivergedError, Result, compare, load, simulate

_SIMULATOR = ("DivergedError", "Result", "compare", "load", "simulate")

__all__ = [
    "QSGD",
    "SGD",
    "Choco",
    "Complete",
    "DivergedError",
    "Exact",
    "Faults",
    "Gossip",
    "InputError",
    "Kernel",
    "Local",
    "Logistic",
    "MissingExtraError",
    "Model",
    "Nearest",
    "RandK",
    "Result",
    "Sign",
    "Softmax",
    "Squared",
    "TopK",
    "cauchy",
    "compare",
    "explain",
    "gaussian",
    "laplacian",
    "load",
    "load_model",
    "simulate",
    "topology",
]


def __getattr__(name: str) -> Any:
    # The simulator brings JAX along; `import omkl` must not.
    if name not in _SIMULATOR:
        raise AttributeError(f"module 'omkl' has no attribute {name!r}")
    try:
        from omkl import simulator
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "jax", "sim") from None
    return getattr(simulator, name)
