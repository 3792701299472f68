"""Algorithm 1 in plain NumPy, vectorized over nodes and seeds for speed: what the simulator is timed against.

Arrays are float32 and ``(J, 2D, P, S)``: with the seeds last every reduction, over features, kernels or nodes, runs
along contiguous memory, which on short rows is several times faster than a sum over the last axis. Buffers are
allocated once. The factor D^(-1/2) of the features is applied to the outputs, which are few.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

CHUNK_BYTES = 8 * 2**20  # of projections at a time


class Curves(NamedTuple):
    """What is recorded of every round: ``(T, S)``, and ``(T, P, S)`` for the weights."""

    loss: Floats
    accuracy: Floats
    disagreement: Floats
    weights: Floats


def run(
    X: Floats,
    y: Floats,
    frequencies: Floats,
    laplacian: Floats,
    levels: int | None = 7,
    eta: float = 0.01,
    gamma: float = 0.009,
    regularization: float = 1e-3,
) -> Curves:
    """Return the curves for inputs ``(T, J, d)``, labels ``(T, J)``, frequencies ``(S, P, D, d)`` and W - I.

    ``levels`` is QSGD's M; None sends exact differences.
    """
    rounds, nodes, inputs = X.shape
    seeds, kernels, D, _ = frequencies.shape
    V = np.ascontiguousarray(frequencies.transpose(3, 2, 1, 0)).reshape(inputs, -1)
    theta, hidden, z, buffer = (np.zeros((nodes, 2 * D, kernels, seeds), np.float32) for _ in range(4))
    log_weights = np.zeros((nodes, kernels, seeds), np.float32)
    rng = np.random.Generator(np.random.SFC64(0))
    step = np.float32(gamma) * laplacian
    scale = np.float32(D**-0.5)
    curves = Curves(*(np.empty((rounds, *shape, seeds), np.float32) for shape in ((), (), (), (kernels,))))
    length = max(1, CHUNK_BYTES // (4 * nodes * V.shape[1]))
    for t in range(rounds):
        if t % length == 0:
            chunk = X[t : t + length]
            angles = (chunk.reshape(-1, inputs) @ V).reshape(len(chunk), nodes, D, kernels, seeds)
        # mix, emit, absorb
        np.matmul(step, hidden.reshape(nodes, -1), out=buffer.reshape(nodes, -1))
        theta += buffer
        np.subtract(theta, hidden, out=buffer)
        if levels is not None:
            _quantize(buffer, levels, rng, z)
        hidden += buffer
        # predict
        np.sin(angles[t % length], out=z[:, :D])
        np.cos(angles[t % length], out=z[:, D:])
        outputs = np.multiply(theta, z, out=buffer).sum(axis=1)
        outputs *= scale
        weights = np.exp(log_weights)
        weights /= weights.sum(axis=1, keepdims=True)
        output = (weights * outputs).sum(axis=1)
        margin = -y[t][:, None] * output
        # record
        curves.loss[t] = _logistic(margin)[0].mean(axis=0)
        curves.accuracy[t] = (1 - np.sign(margin)).mean(axis=0) / 2
        curves.weights[t] = weights.mean(axis=0)
        np.subtract(theta, theta.mean(axis=0), out=buffer)
        np.multiply(buffer, buffer, out=buffer)
        curves.disagreement[t] = np.sqrt(buffer.sum(axis=(0, 1, 2)) / nodes)
        # weigh, learn
        losses, slope = _logistic(-y[t][:, None, None] * outputs)
        losses += regularization * np.multiply(theta, theta, out=buffer).sum(axis=1)
        log_weights -= eta * losses
        log_weights -= log_weights.max(axis=1, keepdims=True)
        slope *= (eta * scale) * y[t][:, None, None]
        z *= slope[:, None]
        theta *= 1 - 2 * eta * regularization
        theta += z
    return curves


def _quantize(v: Floats, levels: int, rng: np.random.Generator, spare: Floats) -> None:
    """Round v to whole multiples of |v|/M at random, in place."""
    steps = np.sqrt(np.multiply(v, v, out=spare).sum(axis=1, keepdims=True)) / levels
    v *= 1 / np.maximum(steps, np.float32(1e-30))
    v += rng.random(dtype=np.float32, out=spare)
    np.floor(v, out=v)  # of signed numbers: the same law as levels of the magnitude and a sign
    v *= steps


def _logistic(margin: Floats) -> tuple[Floats, Floats]:
    """Return ln(1 + exp(m)) and its derivative 1 / (1 + exp(-m))."""
    e = np.exp(-np.abs(margin))
    return np.maximum(margin, 0) + np.log(1 + e), np.where(margin >= 0, np.float32(1), e) / (1 + e)
