"""Algorithm 1 as one writes it first: a loop over seeds, rounds, nodes and kernels, on small NumPy vectors."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def run(
    X: Floats,
    y: Floats,
    frequencies: Floats,
    laplacian: Floats,
    levels: int | None = 7,
    eta: float = 0.01,
    gamma: float = 0.009,
    regularization: float = 1e-3,
) -> Floats:
    """Return the loss ``(T, S)``; the arguments are those of ``vectorized.run``."""
    rounds, nodes, _ = X.shape
    seeds, kernels, D, _ = frequencies.shape
    neighbors = [[i for i in np.flatnonzero(laplacian[j]) if i != j] for j in range(nodes)]
    rng = np.random.default_rng(0)
    loss = np.zeros((rounds, seeds), np.float32)
    for s in range(seeds):
        theta = np.zeros((nodes, kernels, 2 * D), np.float32)
        hidden = np.zeros_like(theta)
        weights = np.ones((nodes, kernels), np.float32)
        for t in range(rounds):
            received = hidden.copy()
            for j in range(nodes):
                output = 0.0
                wbar = weights[j] / weights[j].sum()
                for p in range(kernels):
                    for i in neighbors[j]:
                        theta[j, p] += gamma * laplacian[j, i] * (received[i, p] - received[j, p])
                    hidden[j, p] += quantize(theta[j, p] - hidden[j, p], levels, rng)
                    angles = frequencies[s, p] @ X[t, j]
                    z = np.concatenate([np.sin(angles), np.cos(angles)]) / np.sqrt(D, dtype=np.float32)
                    f = theta[j, p] @ z
                    output += wbar[p] * f
                    penalty = regularization * theta[j, p] @ theta[j, p]
                    weights[j, p] *= np.exp(-eta * (np.log1p(np.exp(-y[t, j] * f)) + penalty))
                    slope = -y[t, j] / (1 + np.exp(y[t, j] * f))
                    theta[j, p] -= eta * (slope * z + 2 * regularization * theta[j, p])
                loss[t, s] += np.log1p(np.exp(-y[t, j] * output)) / nodes
    return loss


def quantize(v: Floats, levels: int | None, rng: np.random.Generator) -> Floats:
    """Return QSGD's rounding of v to multiples of |v|/M; v itself without levels."""
    norm = np.linalg.norm(v)
    if levels is None or norm == 0:
        return v
    rounded = np.floor(levels * np.abs(v) / norm + rng.random(len(v), dtype=np.float32))
    return np.asarray(norm / levels * rounded * np.sign(v), dtype=np.float32)
