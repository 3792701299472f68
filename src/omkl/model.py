"""A learned model: predict, save, load. One file format for simulator, node and estimators."""

import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from omkl import algorithm, losses, scaling
from omkl.errors import InputError, pick
from omkl.features import Features, transform
from omkl.losses import Loss
from omkl.scaling import Inputs

FORMAT, WITH_BASIS, WITH_UNITS = 1, 2, 3  # one that has neither is written as ever, for readers that know of none
_ARRAYS, _OPTIONAL = ("frequencies", "theta", "log_weights"), ("basis", "center", "scale")
DAMAGED = (KeyError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class Model:
    """The ensemble of one node.

    Attributes
    ----------
    frequencies
        ``(P, D, d)``.
    theta
        ``(P, C, 2D)``, or ``(P, C, r)`` in a basis.
    log_weights
        ``(P,)``.
    loss
        What it was learned with; decides what ``predict`` returns.
    basis
        ``(P, 2D, r)``, or None.
    center, scale
        ``(d,)``, what inputs are standardized by before they are predicted; None for both takes them as they are.
    """

    frequencies: npt.NDArray[np.float32]
    theta: npt.NDArray[np.float32]
    log_weights: npt.NDArray[np.float32]
    loss: Loss
    basis: npt.NDArray[np.float32] | None = None
    center: npt.NDArray[np.float64] | None = None
    scale: npt.NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        shapes = self.frequencies.shape, self.theta.shape, self.log_weights.shape
        kernels, features, _ = shapes[0] if len(shapes[0]) == 3 else (0, 0, 0)
        width = 2 * features if self.basis is None else self.basis.shape[-1]
        if len(shapes[1]) != 3 or shapes[1][::2] != (kernels, width) or shapes[2] != (kernels,):
            raise InputError(
                f"frequencies, theta, log_weights of shapes {shapes}; give (P, D, d), (P, C, {width}), (P,)"
            )
        if self.basis is not None and self.basis.shape[:-1] != (kernels, 2 * features):
            raise InputError(
                f"basis has shape {self.basis.shape}; for these frequencies give ({kernels}, {2 * features}, r)"
            )
        units, inputs = [getattr(part, "shape", None) for part in (self.center, self.scale)], shapes[0][-1:]
        if units not in ([None, None], [inputs, inputs]):
            raise InputError(f"center and scale of shapes {units}; give {inputs} for both, or neither")

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """The kernel weights, which sum to one."""
        return np.asarray(algorithm.normalize(self.log_weights))

    def decision_function(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return the outputs f, shape ``(n, C)``, for inputs ``(n, d)``."""
        x: Inputs = np.asarray(X, dtype=np.float32 if self.center is None else np.float64)
        dimension = self.frequencies.shape[-1]
        if x.ndim != 2 or x.shape[1] != dimension:
            raise InputError(
                f"X has shape {x.shape}; this model takes (n, {dimension}); pass rows of {dimension} numbers"
            )
        if not np.isfinite(x).all():
            raise InputError(
                f"X has a non-finite value in row {int(np.argwhere(~np.isfinite(x))[0][0])}; fill or drop it"
            )
        if self.center is not None and self.scale is not None:
            x = scaling.standardize(x, self.center, self.scale)
        z = transform(x, Features(self.frequencies, self.basis))
        return np.asarray(algorithm.predict(self.theta, self.log_weights, z).output)

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return labels ``(n,)``: -1 and +1, class numbers, or real values, as the loss has it."""
        return np.asarray(self.loss.decide(self.decision_function(X)))

    def save(self, path: str | Path) -> None:
        """Write the model as npz with a JSON header, never pickle."""
        with Path(path).open("wb") as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """Write the same to an open file."""
        version = WITH_UNITS if self.center is not None else FORMAT if self.basis is None else WITH_BASIS
        optional = [name for name in _OPTIONAL if getattr(self, name) is not None]
        arrays: dict[str, Any] = {name: getattr(self, name) for name in (*_ARRAYS, *optional)}
        header = {"omkl_model": version, "loss": {"name": self.loss.name, **asdict(self.loss)}}  # type: ignore[call-overload]
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def load_model(path: str | Path) -> Model:
    """Return the model that ``save`` wrote."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            version = header["omkl_model"]
            arrays = {name: file[name] for name in (*_ARRAYS, *(set(_OPTIONAL) & set(file)))}
            loss = loss_from(header["loss"])
    except DAMAGED as error:
        raise InputError(f"{path} is no omkl model ({error}); pass a file written by Model.save") from None
    if version not in (FORMAT, WITH_BASIS, WITH_UNITS):
        raise InputError(f"{path} has model format {version}; this version reads up to {WITH_UNITS}; upgrade omkl")
    return Model(**arrays, loss=loss)


def loss_from(record: dict[str, Any]) -> Loss:
    """Return the loss that a record of its name and settings describes."""
    settings = dict(record)
    return pick("loss", settings.pop("name"), losses.LOSSES)(**settings)
