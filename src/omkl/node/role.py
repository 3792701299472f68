"""Who a node is, and the contract that it shares with its neighbors."""

import hashlib
import math
import re
import struct
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

_STEP = struct.Struct("<f")
DIGEST_BYTES = SETTINGS_BYTES - _STEP.size
DIGEST = re.compile(r"[0-9a-f]{16}")  # as ``_digest`` makes them
UNSAID = {"inputs": "as they come"}  # what a contract means that has no such line
CLOSE = 1e-3  # relative: weights that are solved for differ in their last digits from device to device


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

    settings: bytes = bytes(DIGEST_BYTES)
    """A digest of all that the network's file says of learning and timing; zeros where there is none."""

    def stance(self, peer: str) -> bytes:
        """Return what a neighbor is told of this node's file: the digest, and how far a round closes their gap.

        Both ends go by the smaller of their steps (``agreed``). Else, while their files differ in gamma, in the weights
        or in the graph about them, mixing would move the mean of the models.
        """
        step = self.method.mixing.pull * self.neighbors[peer]
        return self.settings + _STEP.pack(step)

    @property
    def stances(self) -> dict[str, str]:
        """What each neighbor is told, in hexadecimal."""
        return {peer: self.stance(peer).hex() for peer in self.neighbors}

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


def agreed(ours: bytes, theirs: bytes, weight: float) -> tuple[float, str]:
    """Return the weight that a link counts for at this end, and in what the files of its ends differ.

    That is ``"settings"``, or ``"weight"`` if in nothing but the link's, or ``""``. Who tells nothing, or no sound
    step, agrees.
    """
    (own,), (step,) = _STEP.unpack(ours[DIGEST_BYTES:]), _STEP.unpack(theirs[DIGEST_BYTES:])
    told = own > 0 and 0 < step < math.inf
    digests = ours[:DIGEST_BYTES], theirs[:DIGEST_BYTES]
    if all(map(any, digests)) and digests[0] != digests[1]:
        what = "settings"
    else:
        what = "weight" if told and not math.isclose(own, step, rel_tol=CLOSE) else ""
    return weight * step / own if told and step < own else weight, what


def describe(thing: Any) -> str:
    """Return a name and its settings in one line: ``qsgd bits=3 rescale=True block=None``."""
    return " ".join([thing.name, *(f"{one.name}={getattr(thing, one.name)}" for one in fields(thing))])


def differences(ours: str, theirs: str) -> str:
    """Return the lines in which two contracts differ, and of each what only one of both has."""
    both = [dict(line.partition(" ")[::2] for line in text.splitlines()) for text in (ours, theirs)]
    mine, other = both
    keys = [key for key in {**mine, **other} if mine.get(key) != other.get(key)]
    told = []
    for key in keys:
        here, there = _apart(*(one.get(key, UNSAID.get(key, "not told")) for one in both))
        told.append(f"{key} here is {here}, there {there}")
    return "; ".join(told)


def _apart(here: str, there: str) -> tuple[str, str]:
    """Return the words that only one of two values has; if one has none, both values. Digests say nothing to people."""
    words = here.split(), there.split()
    named = [[word for word in value if not DIGEST.fullmatch(word)] for value in words]
    own = [[word for word in value if word not in other] for value, other in (named, named[::-1])]
    for pair in (own, named):
        if all(pair) and pair[0] != pair[1]:
            return " ".join(pair[0]), " ".join(pair[1])
    return here, there
