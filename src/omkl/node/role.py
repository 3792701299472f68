"""Who a node is, and the contract that it shares with its neighbors."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from omkl.landmarks import Landmarks
from omkl.learners import Pooled
from omkl.methods import Gossip
from omkl.node.halves import Floats
from omkl.node.learning import outputs
from omkl.node.settings import Timing
from omkl.scaling import CLIP, Inputs
from omkl.wire import SETTINGS_BYTES


@dataclass(frozen=True, kw_only=True)
class Role:
    """What one node is to its network."""

    network: str
    id: str
    index: int
    """Place in the list of nodes; with the seed it decides the dither."""
    method: Gossip
    inputs: int
    seed: int
    neighbors: Mapping[str, float]
    """Gossip weight w_ij of every neighbor, by id."""
    timing: Timing = Timing()  # noqa: RUF009 - it is frozen
    standardize: bool = False
    """Whether it brings inputs to mean 0 and deviation 1, by the running moments of its own."""
    calibration: Inputs | None = field(default=None, repr=False, compare=False)
    """The rows that its features are calibrated on, where they are; as they come, if inputs are standardized."""
    targets: Floats | None = field(default=None, repr=False, compare=False)
    """Those of these rows, ``(n, C)``, where landmarks are labelled."""
    compiled: bool = True
    """Whether its rounds run as compiled loops, where there are such; what it says fits either way."""

    settings: bytes = bytes(SETTINGS_BYTES)
    """A digest of all that the network's file says of learning and of the graph; zeros where there is none."""

    def contract(self) -> str:
        """Return what neighbors must have in common, a line for each: else their hidden states mean different things.

        Features are compared by their specification, not by values, which may differ in the last bit of a sine.
        """
        method = self.method
        bank = " ".join(f"{kernel.name}:{kernel.sigma!r}" for kernel in method.bank.kernels)
        features = f"{bank} D={method.bank.features} d={self.inputs} seed={self.seed}"
        features += " orthogonal" if method.bank.orthogonal else ""
        features += "" if method.bank.sigma == "given" else f" sigma={method.bank.sigma}"
        basis = method.bank.basis
        if basis is not None:
            features += f" {'landmarks' if isinstance(basis, Landmarks) else 'basis'}={basis.rank}:{basis.source}"
            features += f":{basis.rows}" if isinstance(basis, Landmarks) else ""
        if self.calibration is not None:
            rows = self.calibration.astype("<f8" if self.standardize else "<f4")
            features += f" sample={_digest(rows.tobytes())}"
        if self.targets is not None:
            features += f" labels={_digest(self.targets.astype('<f4').tobytes())}"
        lines = {
            "network": self.network,
            "mode": self.timing.mode,
            "features": f"{_digest(features.encode())} {features}",
            "quantizer": describe(method.channel.quantizer),
            "loss": f"{describe(method.objective)} C={outputs(method.objective)}",
        }
        lines |= {"weights": "common"} if method.weights.common else {}
        if isinstance(method.learner, Pooled):
            most = 1.0 if method.reach is None else method.reach.most
            lines["learner"] = f"pooled priors={','.join(map(repr, method.learner.priors))} reach={most!r}"
        if (pace := method.channel.pace) is not None:
            lines["pace"] = " ".join(f"{one.name}={getattr(pace, one.name)}" for one in fields(pace))
        lines |= {"inputs": f"standardized clip={CLIP:g}"} if self.standardize else {}
        return "".join(f"{key} {value}\n" for key, value in lines.items())


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def describe(thing: Any) -> str:
    """Return a name and its settings in one line: ``qsgd bits=3 rescale=True block=None``."""
    return " ".join([thing.name, *(f"{one.name}={getattr(thing, one.name)}" for one in fields(thing))])


def differences(ours: str, theirs: str) -> str:
    """Return the lines in which two contracts differ, both values of each."""
    both = (dict(line.partition(" ")[::2] for line in text.splitlines()) for text in (ours, theirs))
    mine, other = both
    keys = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
    return "; ".join(f"{key} here is {mine.get(key, 'not told')}, there {other.get(key, 'not told')}" for key in keys)
