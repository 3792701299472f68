"""Decentralized online multi-kernel learning.

Three doors: ``omkl.simulate`` for whole networks, a node for every device, estimators for one process. The algorithm
itself is in ``omkl.algorithm``, the file to read first.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from omkl import topology
from omkl.calibration import Basis
from omkl.compressors import RandK, Sign, TopK
from omkl.errors import DivergedError, InputError, MissingExtraError
from omkl.features import Kernel, cauchy, gaussian, laplacian, matern
from omkl.landmarks import Landmarks
from omkl.learners import SGD, AdaGrad, Newton, Pooled, Shared
from omkl.losses import Huber, Logistic, SmoothedHinge, Softmax, Squared
from omkl.methods import Choco, Complete, Gossip, Local, alone, frugal, paper, recommended
from omkl.model import Model, load_model
from omkl.quantizers import QSGD, Exact, Nearest
from omkl.reach import Reach
from omkl.sending import Budget, Pace, Sampled, Triggered
from omkl.theory import explain
from omkl.topology import Faults

if TYPE_CHECKING:
    __version__: str
    from omkl import data, metrics
    from omkl.experiment import Experiment
    from omkl.node.node import Node
    from omkl.simulator import Comparison, Result, compare, load, simulate
    from omkl_lab.methods import DOMKL, AdaRaker
    from omkl_lab.tuning import Tuned, tune

# What brings more than NumPy along is imported when it is asked for: its module, and the extra it needs.
_LAZY = dict.fromkeys(("Comparison", "Result", "compare", "load", "simulate"), ("omkl.simulator", "sim"))
_LAZY["Experiment"] = ("omkl.experiment", "sim")
_LAZY["Node"] = ("omkl.node.node", "node")
_LAZY |= dict.fromkeys(("Tuned", "tune"), ("omkl_lab.tuning", "sim"))
_LAZY |= dict.fromkeys(("AdaRaker", "DOMKL"), ("omkl_lab.methods", "sim"))

__all__ = [
    "DOMKL",
    "QSGD",
    "SGD",
    "AdaGrad",
    "AdaRaker",
    "Basis",
    "Budget",
    "Choco",
    "Comparison",
    "Complete",
    "DivergedError",
    "Exact",
    "Experiment",
    "Faults",
    "Gossip",
    "Huber",
    "InputError",
    "Kernel",
    "Landmarks",
    "Local",
    "Logistic",
    "MissingExtraError",
    "Model",
    "Nearest",
    "Newton",
    "Node",
    "Pace",
    "Pooled",
    "RandK",
    "Reach",
    "Result",
    "Sampled",
    "Shared",
    "Sign",
    "SmoothedHinge",
    "Softmax",
    "Squared",
    "TopK",
    "Triggered",
    "Tuned",
    "alone",
    "cauchy",
    "compare",
    "data",
    "explain",
    "frugal",
    "gaussian",
    "laplacian",
    "load",
    "load_model",
    "matern",
    "metrics",
    "paper",
    "recommended",
    "simulate",
    "topology",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in ("dashboard", "data", "metrics", "plots", "river", "sklearn", "testing"):
        return import_module(f"omkl.{name}")
    if name == "__version__":
        return version("omkl")
    if name not in _LAZY:
        raise AttributeError(f"module 'omkl' has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise MissingExtraError((error.name or module).partition(".")[0], extra) from None
