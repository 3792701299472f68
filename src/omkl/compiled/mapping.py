"""Features of inputs, as the loops take them: many rows at once by BLAS, or row by row."""

import numpy as np
import numpy.typing as npt

from omkl.compiled import features as loops
from omkl.compiled.jit import Floats
from omkl.features import Features


class Mapping:
    """z(x) of one seed's features.

    Rows that are mapped together share matrix products, which may round them otherwise than alone; ``one`` maps a
    single row.
    """

    def __init__(self, made: Features) -> None:
        self._made, self.inputs = made, made.inputs
        if made.landmarks is None:
            return
        assert made.limits is not None
        assert made.bandwidths is not None
        assert made.basis is not None
        self._shares, self._exponents, self._doubles = gaussians(made.bandwidths)
        low, high = (np.asarray(limit, np.float32) for limit in made.limits)
        self._center = (low + high) / 2  # squares of what is far from zero would cancel
        self._low, self._high = low - self._center, high - self._center
        marks = np.asarray(made.landmarks, np.float32) - self._center
        # |x - l|^2 as one product: of (x, |x|^2, 1) and (-2 l, 1, |l|^2).
        ones = np.ones((len(marks), 1), np.float32)
        self._factor = np.concatenate([-2 * marks, ones, np.sum(marks * marks, axis=1, keepdims=True)], axis=1).T
        self._columns = np.ascontiguousarray(np.asarray(made.landmarks, np.float32).T)
        self._limits = np.ascontiguousarray(made.limits, np.float32)
        self._basis = made.basis[0]

    def rows(self, X: Floats) -> Floats:
        """Return the features ``(n, P, r)`` of rows ``(n, d)``."""
        made = self._made
        if made.landmarks is not None:
            assert made.basis is not None
            similar = np.matmul(self._extended(X), self._factor)
            loops.compare(similar, self._shares, self._exponents, self._doubles)
            return np.matmul(similar, made.basis[0])[:, None]
        V = made.frequencies
        angles = np.matmul(X, V.reshape(-1, V.shape[-1]).T).reshape(len(X), *V.shape[:2])
        return self._waved(angles)

    def one(self, x: Floats) -> Floats:
        """Return the features ``(P, r)`` of one input."""
        return self.each(x[None])[0]

    def each(self, X: Floats) -> Floats:
        """Return the features ``(n, P, r)`` of rows ``(n, d)``, to the bit what each is alone."""
        made = self._made
        if made.landmarks is not None:
            X = X if made.relevance is None else X * made.relevance
            gaussians = self._shares, self._exponents, self._doubles
            return loops.describe(X, self._limits, self._columns, *gaussians, self._basis)[:, None]
        return np.concatenate([self._waved(np.dot(made.frequencies, x)[None]) for x in X])

    def _extended(self, X: Floats) -> Floats:
        """Return rows within the limits, with their squares and a one after them."""
        rows = np.empty((len(X), X.shape[1] + 2), np.float32)
        inputs = rows[:, :-2]
        np.subtract(X if self._made.relevance is None else X * self._made.relevance, self._center, out=inputs)
        np.clip(inputs, self._low, self._high, out=inputs)
        rows[:, -2] = np.einsum("ij,ij->i", inputs, inputs)
        rows[:, -1] = 1
        return rows

    def _waved(self, angles: Floats) -> Floats:
        count, kernels, features = angles.shape
        z = np.empty((count, kernels, 2 * features), np.float32)
        loops.waves(angles, z)
        if self._made.basis is None:
            return z
        return np.ascontiguousarray(np.matmul(z.swapaxes(0, 1), self._made.basis).swapaxes(0, 1))


def gaussians(bandwidths: npt.NDArray[np.floating]) -> tuple[Floats, Floats, bool]:
    """Return weights of Gaussians, the widest first, their exponents, and if each is twice as wide as the next."""
    widths = np.sort(np.asarray(bandwidths, np.float64))[::-1]
    doubles = bool(np.allclose(widths[:-1] / widths[1:], 2, rtol=1e-5))
    return (widths / widths.sum()).astype(np.float32), (-0.5 / widths**2).astype(np.float32), doubles
