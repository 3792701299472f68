"""Algorithm 1 of the paper, phase by phase: the one statement of what omkl computes.

J nodes on a graph each hold P kernel models and learn from their own samples. One round at node j, with the line
numbers of Algorithm 1 in T. Ortega and H. Jafarkhani, "Gossiped and Quantized Online Multi-Kernel Learning", IEEE
Signal Processing Letters 30 (2023):

    mix      [8]      theta  = theta' + gamma * sum_i w_ij (h_i - h_j)      each difference bounded where it is clipped
    heavy_ball        theta  = theta' + v,  v = momentum * v + gamma * sum_i w_ij (h_i - h_j)    momentum 0 is mix
    emit     [9]      q      = Q(theta - h_j)                              this, and nothing else, is sent
    absorb   [12]     h_i    = h_i + q_i                                   for every neighbor i and for j itself
    predict  [3,4,6]  f_p    = theta_p . z_p(x),  f = sum_p wbar_p f_p
    weigh    [5]      ln w_p = ln w_p - eta L(theta_p)
    learn    [14]     theta' = theta - eta grad L(theta)

with L(theta) = C(theta.z, y) + lambda |theta|^2. The paper prints the lines in another order; theta depends only on
the past, so mixing may come first, and the prediction is scored with the weights from before the sample is seen.

Shapes. A model is ``(..., P, C, 2D)``: P kernels, C outputs (one for two classes and for scalar regression), 2D
features. The functions touch the last axes and broadcast over the rest, so the same text serves one node, a network
and a network under many seeds. The array library is that of the arguments; randomness is an argument.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from omkl.arrays import Array, is_exactly, namespace, short_max, short_sum
from omkl.learners import Learner, Memory, Sample
from omkl.losses import Loss
from omkl.quantizers import Message, Quantizer, restore

if TYPE_CHECKING:
    from omkl.reach import Hearing

Velocity: TypeAlias = Array
"""What mixing carries on from round to round, in the shape of the models; empty without momentum."""


WEIGHT_SCALE = 0.25  # a power of two, so that scaling is exact


class State(NamedTuple):
    """What a node keeps from round to round."""

    theta: Array
    """The models after learning, theta', shape ``(..., P, C, 2D)``."""
    hidden: Array
    """The hidden state h that every neighbor holds a copy of, same shape."""
    log_weights: Array
    """Logarithms of the kernel weights, ``(..., P)``; the weights themselves would underflow."""
    memory: Memory
    """The memory of the learner."""
    velocity: Velocity = ()
    """v; it adds up to zero over all nodes, as the pulls of mixing do."""
    moved: Array | tuple[()] = ()
    """Mean square of recent learning steps, ``(..., P)``, if not all kernels are sent; else empty."""
    hearing: "Hearing | tuple[()]" = ()
    """What a node has heard, if steps count for all who are heard; else empty."""


class Prediction(NamedTuple):
    """The ensemble's output and its parts."""

    output: Array
    """f, shape ``(..., C)``."""
    kernel_outputs: Array
    """f_p, shape ``(..., P, C)``."""


def init(theta: Array, learner: Learner, spectrum: Array | None = None) -> State:
    """Return the state before the first round, for models ``theta`` (zeros, in the paper).

    ``spectrum`` has the eigenvalues of the basis of the features, ``(..., P, 2D)``, if there is one.
    """
    xp = namespace(theta)
    log_weights = xp.zeros(theta.shape[:-2], dtype=theta.dtype)
    return State(theta, xp.zeros_like(theta), log_weights, learner.init(theta, spectrum))


def clipped(hidden: Array, copies: Array, radius: Array | float | None) -> Array:
    """Return copies of hidden states, brought to within ``radius`` of h_j kernel by kernel; None changes nothing.

    ``hidden`` is the node's own state, broadcast against the copies ``(..., P, C, 2D)``. The radius is a number, or one
    for every seed, ``(S,)``, of copies ``(J, S, ...)``. A copy within the radius stays as it is, to the bit. A copy
    farther away keeps its direction. Finite numbers give finite numbers. So one neighbor moves a node by at most
    gamma w_ij ``radius`` in a round.

    References
    ----------
    L. He, S. P. Karimireddy, M. Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022. Its rule for
    the radius needs more neighbors than a path has; here the radius is given.
    """
    if radius is None:
        return copies
    xp = namespace(copies)
    apart = copies - hidden
    if getattr(radius, "ndim", 0):
        radius = xp.reshape(radius, (-1, *(1,) * (apart.ndim - 2)))
    largest = xp.max(xp.abs(apart), axis=(-2, -1), keepdims=True)
    # In units of the largest entry: squares of 1e30 are no float32.
    unit = apart / xp.where(largest > 0, largest, xp.ones_like(largest))
    squares = xp.sum(unit * unit, axis=(-2, -1), keepdims=True)
    bound = radius / xp.sqrt(xp.where(largest > 0, squares, xp.ones_like(largest)))
    return xp.where(largest <= bound, copies, hidden + xp.minimum(bound, largest) * unit)


def mix(theta: Array, hidden: Array, neighbors: Array, weights: Array, gamma: float) -> Array:
    """Return theta' + gamma * sum_i w_ij (h_i - h_j), line 8.

    ``neighbors`` are the copies of the hidden states of K neighbors, ``(..., K, P, C, 2D)``; ``weights`` are the gossip
    weights w_ij, ``(..., K)``.
    """
    xp = namespace(theta)
    pull = weights[..., None, None, None] * (neighbors - hidden[..., None, :, :, :])
    return theta + gamma * xp.sum(pull, axis=-4)


def heavy_ball(
    theta: Array, velocity: Velocity, momentum: float, mix: Callable[[Array], Array]
) -> tuple[Array, Velocity]:
    """Return the models after mixing with momentum, and the velocity: heavy-ball consensus.

    ``mix`` adds the pull of the neighbors to its argument. Pulls add up to zero over the network, and so do velocities;
    therefore the mean of the models stays. Differences between far ends of a graph fade in about the square root of the
    rounds that they need without momentum.

    References
    ----------
    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    """
    if is_exactly(momentum, 0):
        return mix(theta), ()
    velocity = mix(momentum * velocity)
    return theta + velocity, velocity


def append_weights(theta: Array, log_weights: Array, told: Array | None = None) -> Array:
    """Return what nodes gossip if kernel weights are common: the model of each kernel, followed by its log weight.

    The shape is ``(..., P, C, n + 1)``. The weight is in the row of the first output; other rows end with zero. Log
    weights are centered, because only their differences matter, and they stay centered in mixing. They are scaled down,
    because they move farther than coefficients, and one quantizer step serves the whole row. A model that is read in V
    ways has V weights, ``(..., P V)`` in all. What else a learner sends, ``told (..., P, k)``, comes last.
    """
    xp = namespace(theta)
    centered = log_weights - short_sum(log_weights) / log_weights.shape[-1]
    beside = xp.reshape(centered, (*theta.shape[:-2], -1))
    beside = (beside if told is None else xp.concat([beside, told], axis=-1))[..., None, :]
    rest = xp.zeros((*theta.shape[:-2], theta.shape[-2] - 1, beside.shape[-1]), dtype=theta.dtype)
    return xp.concat([theta, xp.concat([WEIGHT_SCALE * beside, rest], axis=-2)], axis=-1)


def split_weights(joined: Array, views: int = 1, told: int = 0) -> tuple[Array, Array, Array]:
    """Return models, log weights and the learner's numbers: the parts that ``append_weights`` joined."""
    n = joined.shape[-1] - views - told
    beside = joined[..., 0, n:] / WEIGHT_SCALE
    weights = namespace(joined).reshape(beside[..., :views], (*joined.shape[:-3], -1))
    return joined[..., :n], weights, beside[..., views:]


def emit(
    theta: Array, hidden: Array, quantizer: Quantizer, uniforms: Array | None, sent: Array | None = None
) -> Message:
    """Return q = Q(theta - h_j), line 9; each of the P x C rows is quantized as a vector of 2D elements.

    ``sent (..., P)`` says which kernels are sent; q is zero for the others. None sends all.
    """
    difference = theta - hidden
    if sent is not None:
        xp = namespace(difference)
        difference = xp.where(sent[..., None, None], difference, xp.zeros_like(difference))
    return quantizer.quantize(difference, uniforms)


def absorb(hidden: Array, message: Message) -> Array:
    """Return h + q, line 12. Every node that absorbs the same messages gets the same bits."""
    return hidden + restore(message)


def predict(theta: Array, log_weights: Array, z: Array, readings: Array | None = None) -> Prediction:
    """Return the outputs f_p = theta_p . z_p(x) and their weighted mean, lines 3, 4 and 6.

    With ``readings (..., P, V, n)`` every model is read in V ways: its coefficients are multiplied by each reading.
    There are then P V outputs and weights.
    """
    xp = namespace(theta)
    if readings is None:
        kernel_outputs = xp.sum(theta * z[..., None, :], axis=-1)
    else:
        products = theta * z[..., None, :]
        every = xp.sum(products[..., None, :, :] * readings[..., None, :], axis=-1)  # (..., P, V, C)
        kernel_outputs = xp.reshape(every, (*every.shape[:-3], -1, every.shape[-1]))
    weighed = normalize(log_weights)[..., None, :] * xp.matrix_transpose(kernel_outputs)
    return Prediction(short_sum(weighed)[..., 0], kernel_outputs)


def kernel_losses(theta: Array, kernel_outputs: Array, y: Array, loss: Loss, regularization: float) -> Array:
    """Return L(theta_p) = C(f_p, y) + lambda |theta_p|^2, shape ``(..., P)``."""
    penalty = regularization * namespace(theta).sum(theta * theta, axis=(-2, -1))
    return loss.value(kernel_outputs, y[..., None, :]) + penalty


def weigh(log_weights: Array, losses: Array, rate: float, most: float | None = None) -> Array:
    """Return ln w_p - rate * L(theta_p), line 5; the paper's rate is eta.

    The result is shifted so that the largest is zero: only differences matter, and so they keep their digits over a
    long stream. With ``most``, a loss counts as at most this much above the loss of the best kernel.
    """
    if most is not None:
        xp = namespace(losses)
        losses = xp.clip(losses - xp.min(losses, axis=-1, keepdims=True), None, most)
    log_weights = log_weights - rate * losses
    return log_weights - short_max(log_weights)


def gradient(theta: Array, kernel_outputs: Array, z: Array, y: Array, loss: Loss, regularization: float) -> Array:
    """Return grad L(theta_p) = C'(f_p, y) z_p + 2 lambda theta_p, shape ``(..., P, C, 2D)``."""
    slope = loss.derivative(kernel_outputs, y[..., None, :])
    return slope[..., None] * z[..., None, :] + 2 * regularization * theta


def learn(
    theta: Array,
    memory: Memory,
    kernel_outputs: Array,
    z: Array,
    y: Array,
    loss: Loss,
    regularization: float,
    learner: Learner,
    weight: Array | None = None,
    reach: Array | None = None,
    alike: Array | None = None,
) -> tuple[Array, Memory]:
    """Return theta' = theta - eta grad L(theta), line 14, or the step of another learner.

    A learner with a prior gets the gradient of C alone. ``weight (...)`` multiplies the loss of a sample.
    ``reach (...)`` says how many nodes' samples a step counts for, and ``alike (..., P)`` how alike these are.
    """
    slope = gradient(theta, kernel_outputs, z, y, loss, 0.0 if learner.has_prior else regularization)
    if weight is not None:
        slope = weight[..., None, None, None] * slope
    return learner.update(theta, memory, slope, z, Sample(kernel_outputs, y[..., None, :], loss, weight, reach, alike))


def normalize(log_weights: Array) -> Array:
    """Return the kernel weights wbar_p, which sum to one."""
    weights = namespace(log_weights).exp(log_weights - short_max(log_weights))
    return weights / short_sum(weights)
