"""A learned model: predict, save, load. One file format for simulator, node and estimators."""

import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from omkl import algorithm, losses, scaling, storage
from omkl.arrays import Array
from omkl.data import reading
from omkl.data.encoding import Encoding, Number
from omkl.display import as_html, as_text, counted
from omkl.errors import InputError, pick
from omkl.features import Features, transform
from omkl.losses import Loss
from omkl.scaling import Inputs

# One that has no basis, units, landmarks, relevance or table is written as ever, for readers that know of none.
FORMAT, WITH_BASIS, WITH_UNITS, WITH_LANDMARKS, WITH_RELEVANCE, WITH_TABLE = 1, 2, 3, 4, 5, 6
FAR = 10  # deviations: numbers so far from the mean are said to be
MOST_SHOWN = 160  # characters of names of columns
_ARRAYS = (
    "theta", "log_weights", "frequencies", "basis", "center", "scale", "landmarks", "limits", "bandwidths", "relevance"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Model:
    """The model of one node: predict with it, save it, load it.

    Attributes
    ----------
    frequencies
        Random frequencies, ``(P, D, d)``; None on landmarks.
    theta
        Coefficients, ``(P, C, 2D)``, or ``(P, C, r)`` in a basis. On landmarks, P is the number of readings of one
        model.
    log_weights
        Logarithms of the weights, ``(P,)``.
    loss
        The loss that was learned; it decides what ``predict`` returns.
    basis
        ``(P, 2D, r)``, or ``(1, L, r)`` on landmarks, or None.
    center, scale
        Mean and deviation by which inputs are standardized before predicting, ``(d,)``; None for both takes inputs as
        they are.
    landmarks, limits, bandwidths, relevance
        What ``omkl.features.similarities`` takes: ``(L, d)``, ``(2, d)``, ``(B,)`` and ``(d,)``; or None. A saved file
        contains them: landmarks are inputs.
    encoding
        How the rows of a table become inputs, and what its labels are called; or None.
    """

    frequencies: Array
    theta: npt.NDArray[np.float32]
    log_weights: npt.NDArray[np.float32]
    loss: Loss
    basis: npt.NDArray[np.float32] | None = None
    center: npt.NDArray[np.float64] | None = None
    scale: npt.NDArray[np.float64] | None = None
    landmarks: npt.NDArray[np.float32] | None = None
    limits: npt.NDArray[np.float32] | None = None
    bandwidths: npt.NDArray[np.float32] | None = None
    relevance: npt.NDArray[np.float32] | None = None
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        inputs = self._check_landmarks() if self.frequencies is None else self._check_frequencies(self.frequencies)
        units = [getattr(part, "shape", None) for part in (self.center, self.scale)]
        if units not in ([None, None], [inputs, inputs]):
            raise InputError(f"center and scale of shapes {units}; give {inputs} for both, or neither")

    def _check_landmarks(self) -> tuple[int, ...]:
        given = (self.landmarks, self.limits, self.bandwidths, self.basis, self.theta, self.log_weights)
        found = tuple(np.shape(part) if part is not None else () for part in given)
        inputs, (count, rank) = found[0][-1:], (found[3][1:] if len(found[3]) == 3 else (0, 0))
        members, outputs = found[4][:2] if len(found[4]) == 3 else (0, 0)
        due = ((count, *inputs), (2, *inputs), found[2][:1], (1, count, rank), (members, outputs, rank), (members,))
        weighed = self.relevance is None or self.relevance.shape == inputs
        if found != due or not count or len(inputs) != 1 or not weighed:
            raise InputError(
                f"landmarks, limits, bandwidths, basis, theta, log_weights of shapes {found}; give (L, d), (2, d), "
                "(B,), (1, L, r), (P, C, r), (P,), or frequencies"
            )
        return inputs

    def _check_frequencies(self, frequencies: npt.NDArray[np.float32]) -> tuple[int, ...]:
        shapes = frequencies.shape, self.theta.shape, self.log_weights.shape
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
        return shapes[0][-1:]

    def __repr__(self) -> str:
        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        return as_html(*self._shown())

    def _shown(self) -> tuple[str, dict[str, str]]:
        (members, outputs, width), marks = self.theta.shape, self.landmarks
        if marks is None:
            made = f"{counted(members, 'kernel')}, {self.frequencies.shape[1]:,} random frequencies each"
        else:
            made = f"similarities to {counted(len(marks), 'landmark')}"
        of = " for each kernel" if marks is None else f" for each of {members:,} models, weighed by their losses"
        each = "" if members == 1 else of
        rows = {"features": made, "learned": f"{counted(outputs * width, 'coefficient')}{each}"}
        if self.center is not None:
            rows["inputs"] = "as they come; the model standardizes them"
        if self.encoding is not None:
            rows["table"] = ", ".join(one.name for one in self.encoding.columns)[:MOST_SHOWN]
        chances = "" if self.classes_ is None else ".predict_proba(X)  .classes_  "
        rows["see"] = f'.predict(X)  {chances}.decision_function(X)  .weights  .save("model.npz")'
        size = f"{counted(self.features.inputs, 'input')}, {counted(outputs, 'output')}"
        return f"Model of {size}, {self.loss.name} loss", rows

    @property
    def features(self) -> Features:
        """What z(x) is computed with."""
        marks = self.landmarks, self.limits, self.bandwidths, self.relevance
        return Features(self.frequencies, self.basis, None, *marks)

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """The kernel weights, which sum to one."""
        return np.asarray(algorithm.normalize(self.log_weights))

    @property
    def classes_(self) -> npt.NDArray[Any] | None:
        """The labels, in the order of the columns of ``predict_proba``; None if the loss has no probabilities."""
        chances = getattr(self.loss, "probabilities", None)
        if chances is None:
            return None
        if self.encoding is not None and self.encoding.classes is not None:
            return np.array(self.encoding.classes)
        return np.array(list(chances(np.zeros(self.theta.shape[1]))))

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the outputs f, shape ``(n, C)``, for inputs ``(n, d)``, or rows of a table as for ``predict``."""
        dimension, rows = self.features.inputs, None if self.encoding is None else reading.rows(X)
        if self.encoding is not None and rows is not None:
            X = self.encoding.inputs(rows)
            for told in [*self.encoding.strange(rows), *self._far(X)]:
                warnings.warn(f"{told}; the prediction may mean nothing", stacklevel=3)
        wanted = f"rows of {dimension} numbers" + (f", or {self.encoding.wanted}" if self.encoding else "")
        try:
            x: Inputs = np.asarray(X, dtype=np.float32 if self.center is None else np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"X is not of numbers ({error}); this model takes {wanted}; pass these") from None
        if x.ndim != 2 or x.shape[1] != dimension:
            raise InputError(f"X has shape {x.shape}; this model takes (n, {dimension}); pass {wanted}")
        if not np.isfinite(x).all():
            raise InputError(
                f"X has a non-finite value in row {int(np.argwhere(~np.isfinite(x))[0][0])}; fill or drop it"
            )
        if self.center is not None and self.scale is not None:
            x = scaling.standardize(x, self.center, self.scale)
        z = transform(x, self.features)
        f = np.asarray(algorithm.predict(self.theta, self.log_weights, z).output)
        return f if self.encoding is None else np.asarray(self.encoding.in_units(f), dtype=np.float32)

    def _far(self, X: npt.NDArray[Any]) -> list[str]:
        """Return which columns of numbers hold what is far from all that was seen, as in another unit."""
        if self.encoding is None or self.center is None or self.scale is None:
            return []
        told, names = [], self.encoding.names
        for one in self.encoding.columns:
            if isinstance(one, Number):
                k = names.index(one.name)
                low, high = one.seen or (np.inf, -np.inf)
                off = np.where((X[:, k] < low) | (X[:, k] > high), np.abs(X[:, k] - self.center[k]), 0)
                if off.max(initial=0) > FAR * self.scale[k]:
                    told.append(
                        f"{one.name} holds {X[off.argmax(), k]:.4g}, far from the {self.center[k]:.4g} ± "
                        f"{self.scale[k]:.2g} that was seen, perhaps in another unit"
                    )
        return told

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return predictions ``(n,)``: -1 and +1, class numbers, or real values, according to the loss.

        A model of a table also takes a CSV or Parquet file or a data frame with the columns of that table, and predicts
        labels as they stand in the table.
        """
        decided = np.asarray(self.loss.decide(self.decision_function(X)))
        if self.encoding is None or self.encoding.classes is None:
            return decided
        places = (decided + 1) // 2 if self.theta.shape[1] == 1 else decided
        return np.asarray(np.array(self.encoding.classes)[places])

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the probability of every class, ``(n, classes)``, for logistic and softmax losses.

        Columns are in the order of ``classes_``: -1 and +1, or 0, 1, 2, ..., or the labels of a table.
        """
        chances = getattr(self.loss, "probabilities", None)
        if chances is None:
            raise InputError(
                f"loss is {self.loss.name}; it has no probabilities; logistic and softmax have; use predict"
            )
        outputs = self.decision_function(X)
        found = np.array([list(chances(f).values()) for f in outputs], dtype=np.float64)
        return found.reshape(len(outputs), max(2, self.theta.shape[1]))

    def save(self, path: str | Path) -> None:
        """Write the model as npz with a JSON header, never pickle."""
        with storage.replacing(path) as file:
            self.write(file)

    def write(self, file: BinaryIO) -> None:
        """Write the model to an open file."""
        version = WITH_UNITS if self.center is not None else FORMAT if self.basis is None else WITH_BASIS
        version = version if self.landmarks is None else WITH_LANDMARKS
        version = version if self.relevance is None else WITH_RELEVANCE
        version = version if self.encoding is None else WITH_TABLE
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        header = {"omkl_model": version, "loss": {"name": self.loss.name, **asdict(self.loss)}}  # type: ignore[call-overload]
        storage.pack(file, arrays, header if self.encoding is None else header | {"table": self.encoding.record()})


def load_model(path: str | Path) -> Model:
    """Return the model that ``save`` wrote."""
    if Path(path).is_dir():
        raise InputError(
            f"{path} is a folder; a model is a file written by Model.save; of a saved run take "
            "omkl.load(folder).model(node=0)"
        )
    formats, remedy = tuple(range(FORMAT, WITH_TABLE + 1)), "pass a file written by Model.save"
    header, arrays = storage.read(path, "model", formats, remedy)
    with storage.refusing(f"{path} is not an omkl model", remedy):
        for name in _ARRAYS:
            if name in arrays and (arrays[name].dtype.kind != "f" or not arrays[name].size):
                raise InputError(f"{name} has type {arrays[name].dtype} and shape {arrays[name].shape}; no numbers")
        given: Any = {"frequencies": None} | {name: arrays[name] for name in _ARRAYS if name in arrays}
        if "table" in header:
            given["encoding"] = Encoding.of(header["table"])
        model = Model(**given, loss=loss_from(header["loss"]))
        # Kernels that count for nothing have log weights of -inf; the largest is never one.
        numbers = arrays | {"log_weights": np.max(arrays["log_weights"])}
        broken = [name for name in _ARRAYS if name in arrays and not np.isfinite(numbers[name]).all()]
    if broken:
        raise InputError(f"{path} has nan or inf in {broken[0]}; a model must be finite; save one that did not diverge")
    for name in {"scale", "bandwidths"} & arrays.keys():
        if (least := np.min(arrays[name])) <= 0:
            raise InputError(f"{path} has {least} in {name}; inputs are divided by it; {remedy}")
    return model


def model_of(
    features: Features,
    theta: npt.NDArray[np.float32],
    log_weights: npt.NDArray[np.float32],
    loss: Loss,
    center: npt.NDArray[np.float64] | None = None,
    scale: npt.NDArray[np.float64] | None = None,
) -> Model:
    """Return the model with these features."""
    frequencies, basis, _, *marks = features
    return Model(frequencies, theta, log_weights, loss, basis, center, scale, *marks)


def loss_from(record: dict[str, Any]) -> Loss:
    """Return the loss for a record of its name and settings."""
    settings = dict(record)
    return pick("loss", settings.pop("name"), losses.LOSSES)(**settings)
