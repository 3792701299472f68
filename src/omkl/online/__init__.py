"""Learning rows one after another in one process: what the estimators of ``omkl.sklearn`` and ``omkl.river`` share.

Kernels need units: those of the columns, the median distance between inputs, the basis they vary in, and which columns
matter. Nobody gives them here, so the first rows do. While rows are few, up to ``warmup``, they are kept: at any time
the state is what comes of calibrating on the first 2^k of the n rows so far, the largest such power, and learning all n
from the start, in order. With row ``warmup`` all kept rows calibrate once more, they are dropped, and what comes is
learned as it comes. So the state depends on the rows and their order alone, never on how calls cut them or on what was
predicted in between; and it is computed when it is asked for, so that many rows given at once calibrate once.

By default rows are learned at several rates of forgetting (``tracking``), and where the loss rises a calibration on the
rows since then is tried (``adaptive``). Other methods calibrate on the first rows alone.

As a network, every row is one node's. A round goes on until all nodes have a sample, or one would get a second, and
then they gossip and learn; nodes without a sample rest. All nodes share the calibration.
"""

from omkl.methods import Method
from omkl.online.adaptive import Adaptive
from omkl.online.learner import BLOCK, Online
from omkl.online.playing import Row
from omkl.online.settings import Settings
from omkl.online.tasks import Classification, Regression, Task, probabilities
from omkl.online.tracking import Tracking
from omkl.topology import Topology

__all__ = ["BLOCK", "Classification", "Online", "Regression", "Row", "Settings", "Task", "begin", "probabilities"]


def begin(task: Task, method: Method, seed: int = 0, warmup: int = 512, topology: Topology | None = None) -> Online:
    """Return a learner of rows that has seen none."""
    kind = Adaptive if isinstance(method, Tracking) and topology is None else Online
    return kind(task, method, seed, warmup, topology)
