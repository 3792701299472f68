"""The tables of a network's file: nodes, their timing, TLS, who may ask for what, calibration, and checkpoints."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt

from omkl import storage
from omkl.errors import InputError, whole

WORD = re.compile(r"[A-Za-z0-9_-]+")  # stands alone in a zenoh key, a file's name and a label of a metric
LONGEST_WORD = 128  # letters; with an ending it must still fit a file's name
LONGEST_CERTIFIED = 64  # letters; a common name has no more
AUTHORITY = "ca"  # the name of its files, beside those of nodes
ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
EVERYWHERE = ("0.0.0.0", "[::]")

EVERYONE = ("*",)
LONGEST = 1e6  # seconds that a node waits for anything: eleven days


@dataclass(frozen=True, kw_only=True)
class Member:
    """One node of the network.

    Attributes
    ----------
    id
        The node's name: letters, digits, ``-`` and ``_``.
    listen
        Where its neighbors reach it: ``"tcp/192.168.1.10:7447"``, or ``"tls/192.168.1.10:7447"`` with certificates.
    metrics
        Where it serves metrics and health over HTTP, such as ``"127.0.0.1:17447"``. Without it nothing is served.
    position
        Where ``omkl dashboard`` draws the node: two numbers, to the right and up. Without it the page finds a place.
    """

    id: str
    listen: str
    metrics: str | None = None
    position: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_word("id", self.id)
        if self.position is not None:
            object.__setattr__(self, "position", _place(self.position))
        protocol, _, address = self.listen.partition("/")
        if protocol not in ("tcp", "tls") or not _is_address(address):
            raise InputError(
                f"listen is {self.listen!r}; it must be tcp/ or tls/, a host and a port; write tcp/192.168.1.10:7447",
                "listen",
            )
        if address.rpartition(":")[0] in EVERYWHERE:
            raise InputError(
                f"listen is {self.listen!r}; neighbors connect there, so it must be an address of this device; write "
                "tcp/192.168.1.10:7447",
                "listen",
            )
        if self.metrics is not None and not _is_address(self.metrics):
            raise InputError(f"metrics is {self.metrics!r}; it must be a host and a port; write 127.0.0.1:17447")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a round begins, and how long a node waits, in seconds.

    Attributes
    ----------
    mode
        ``"lockstep"``: rounds follow the observations, and every neighbor takes the same round. ``"timer"``: learn from
        every observation at once, and gossip once a period.
    deadline
        How long a neighbor may be silent, in seconds. Then the others go on without it, until it is heard again.
    patience
        With ``"lockstep"``: how long after its last observation a node lets its neighbors wait for the next one, in
        seconds. Then it takes part in their rounds without one. It must be less than the deadline.
    period
        With ``"timer"``: the time from one round to the next, in seconds. It must be less than the deadline.
    """

    mode: Literal["lockstep", "timer"] = "lockstep"
    deadline: float = 5.0
    patience: float = 1.0
    period: float = 1.0

    def __post_init__(self) -> None:
        for name in ("deadline", "patience", "period"):
            if not 0 < (value := getattr(self, name)) <= LONGEST:
                rule = f"it must be positive and {LONGEST:g} at most, in seconds"
                raise InputError(f"{name} is {value}; {rule}; try {name} = 1.0")
        pause = "patience" if self.mode == "lockstep" else "period"
        if (value := getattr(self, pause)) >= self.deadline:
            raise InputError(
                f"{pause} is {value} and the deadline {self.deadline}; a node that pauses so long is left out by its "
                "neighbors; lengthen the deadline",
                pause,
            )


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files of mutual TLS; ``{id}`` in their names stands for a node's id.

    Attributes
    ----------
    ca
        The certificate of the authority that signed all others.
    certificate
        The node's own certificate. Its common name is the node's id.
    key
        The key of that certificate. Only the user who runs the node may read it.
    """

    ca: Path
    certificate: Path
    key: Path

    def of(self, id: str) -> "Tls":
        """Return the files of one node; refuse those that are not there."""
        files = self.named(id)
        for name, path in vars(files).items():
            if not path.is_file():
                raise InputError(f"tls.{name}: {path} is not a file; TLS needs it on this device; copy it there")
        return files

    def named(self, id: str) -> "Tls":
        """Return the files of one node, whether they are there or not."""
        return Tls(**{name: Path(str(path).replace("{id}", id)) for name, path in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Access:
    """Who may ask a node for what: names of certificates, ``["*"]`` for everyone in reach, ``[]`` for nobody.

    Attributes
    ----------
    predict
        Who may ask for predictions.
    observe
        Who may give the node observations.
    model
        Who may fetch the file of its model.
    status
        Who may ask how the node stands, as ``omkl dashboard`` does.
    """

    predict: Sequence[str]
    observe: Sequence[str]
    model: Sequence[str]
    status: Sequence[str] = ()

    def __post_init__(self) -> None:
        for service, names in vars(self).items():
            if isinstance(names, str):
                raise InputError(f"{service} is {names!r}; it must be a list of names; write {service} = [{names!r}]")
            for name in names if tuple(names) != EVERYONE else ():
                check_word(service, name)

    @classmethod
    def open(cls) -> "Access":
        """Return what a file without the table means: everyone may."""
        return cls(predict=EVERYONE, observe=EVERYONE, model=EVERYONE, status=EVERYONE)

    @property
    def names(self) -> set[str]:
        """All names that are listed."""
        return {name for names in vars(self).values() for name in names} - set(EVERYONE)

    def services(self, name: str) -> list[str]:
        """Return what the holder of a certificate of that name may ask for."""
        return [service for service, names in vars(self).items() if name in names or tuple(names) == EVERYONE]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Where the inputs are that a network is calibrated on, the same at every node.

    Attributes
    ----------
    file
        An npz file with an array ``X`` of inputs, one row for each, in the units that nodes observe in; ``omkl node
        inputs`` writes it. Nodes that standardize bring these rows to mean 0 and deviation 1 by themselves. The file
        may hold the labels ``y`` of the rows too: columns then count by what they say of the labels, as with
        ``Landmarks(source="labelled")``.
    """

    file: Path

    def read(self, folder: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return the rows and their labels, if there are any; a relative path is looked for in the folder."""
        path = folder / self.file
        remedy = "it must hold an array X of inputs; write it by np.savez(file, X=X)"
        with storage.refusing(f"calibration.file: {path} cannot be read", remedy, OSError):
            arrays = storage.load(path).arrays
            return arrays["X"], arrays.get("y")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Where a node keeps its state, in files of its own, and how often.

    Attributes
    ----------
    folder
        The folder of the files, one for each node.
    every
        Rounds from one checkpoint to the next. With ``"observation"`` a node saves before it acknowledges an
        observation, so that none it acknowledged is ever lost.
    """

    folder: Path
    every: int | str = 100

    def __post_init__(self) -> None:
        if not isinstance(self.every, str):
            whole("every", self.every)
        elif self.every != "observation":
            raise InputError(
                f"every is {self.every!r}; it must be a number of rounds or 'observation'; try every = 100"
            )

    def file(self, id: str) -> Path:
        """Return the file of one node."""
        return self.folder / f"{id}.npz"


def _place(given: Sequence[float]) -> tuple[float, float]:
    if len(given) != 2 or not all(map(math.isfinite, given)):
        raise InputError(f"position is {given}; it must be two numbers, to the right and up; write position = [1.5, 2]")
    return float(given[0]), float(given[1])


def check_word(name: str, value: str) -> None:
    """Refuse a name that is not a single word."""
    if len(value) > LONGEST_WORD:
        raise InputError(f"{name} has {len(value)} letters; files are named by it; take {LONGEST_WORD} at most", name)
    if not WORD.fullmatch(value):
        raise InputError(f"{name} is {value!r}; it takes letters, digits, - and _ only; try {name} = 'sensor-1'", name)


def check_certified(name: str, value: str) -> None:
    """Refuse a name that no certificate can be made out to."""
    if len(value) > LONGEST_CERTIFIED:
        rule = f"a certificate takes {LONGEST_CERTIFIED} at most; take a shorter one"
        raise InputError(f"{name} has {len(value)} letters; {rule}", name)
    if value == AUTHORITY:
        raise InputError(f"{name} is {value!r}; the files of the authority have that name; take another", name)


def _is_address(text: str) -> bool:
    match = ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[2]) < 2**16
