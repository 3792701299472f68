"""Algorithm 1 of the letter, phase by phase: the one statement of what omkl computes.

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

with L(theta) = C(theta.z, y) + lambda |theta|^2. The letter prints the lines in another order; theta depends only on
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
    """What a node carries from round to round."""

    theta: Array
    """The models after learning, theta', shape ``(..., P, C, 2D)``."""
    hidden: Array
    """The hidden state h that every neighbor holds a copy of, same shape."""
    log_weights: Array
    """Logarithms of the kernel weights, ``(..., P)``: as products they underflow."""
    memory: Memory
    """The learner's own."""
    velocity: Velocity = ()
    """v; over all nodes it adds up to zero, as the pulls of mixing do."""
    moved: Array | tuple[()] = ()
    """Mean square of recent moves in learning, ``(..., P)``, where not all kernels are sent; else empty."""
    hearing: "Hearing | tuple[()]" = ()
    """What a node has heard, where steps count for all who are heard; else empty."""


class Prediction(NamedTuple):
    """The ensemble's output and its parts."""

    output: Array
    """f, shape ``(..., C)``."""
    kernel_outputs: Array
    """f_p, shape ``(..., P, C)``."""


def init(theta: Array, learner: Learner, spectrum: Array | None = None) -> State:
    """Return the state before the first round, for models ``theta`` (zeros, in the letter).

    ``spectrum`` has the eigenvalues of the basis the features are in, ``(..., P, 2D)``, where there is one.
    """
    xp = namespace(theta)
    log_weights = xp.zeros(theta.shape[:-2], dtype=theta.dtype)
    return State(theta, xp.zeros_like(theta), log_weights, learner.init(theta, spectrum))


def clipped(hidden: Array, copies: Array, radius: Array | float | None) -> Array:
    """Return copies of hidden states, each kernel's brought to within ``radius`` of h_j; None leaves them as they are.

    ``hidden`` is the node's own, broadcast against the copies ``(..., P, C, 2D)``. The radius is a number, or one for
    every seed, ``(S,)``, of copies ``(J, S, ...)``. A copy within the radius comes back
    to the bit, one that is farther away stays in its direction, and whatever is finite gives what is finite. So one
    neighbor moves a node by gamma w_ij ``radius`` in a round at most.

    References
    ----------
    L. He, S. P. Karimireddy, M. Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022. The rule by
    which it adapts the radius needs more neighbors than a path has; here it is given.
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

    ``neighbors`` holds the copies of the K neighbors' hidden states, ``(..., K, P, C, 2D)``; ``weights`` the gossip
    weights w_ij, ``(..., K)``.
    """
    xp = namespace(theta)
    pull = weights[..., None, None, None] * (neighbors - hidden[..., None, :, :, :])
    return theta + gamma * xp.sum(pull, axis=-4)


def heavy_ball(
    theta: Array, velocity: Velocity, momentum: float, mix: Callable[[Array], Array]
) -> tuple[Array, Velocity]:
    """Return the models after mixing, and the velocity: heavy-ball consensus.

    ``mix`` adds the pull of the neighbors to what it is given. Pulls add up to zero over the network, so velocities do,
    and the mean of the models stays. Differences between far ends of a graph fade in about the square root of the
    rounds that it takes without momentum.

    References
    ----------
    B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    """
    if is_exactly(momentum, 0):
        return mix(theta), ()
    velocity = mix(momentum * velocity)
    return theta + velocity, velocity


def append_weights(theta: Array, log_weights: Array, told: Array | None = None) -> Array:
    """Return what nodes gossip where kernel weights are common: each kernel's model, and its log weight after it.

    Shape ``(..., P, C, n + 1)``; the weight is in the row of the first output, and those of the others end with zero.
    Log weights are centered: only their differences matter, and what is centered stays so in mixing. They are scaled
    down, for they move farther than coefficients do, and one step serves the whole row. A model that is read in V ways
    has as many weights, ``(..., P V)`` in all; what else a learner tells, ``(..., P, k)``, comes after them.
    """
    xp = namespace(theta)
    centered = log_weights - short_sum(log_weights) / log_weights.shape[-1]
    beside = xp.reshape(centered, (*theta.shape[:-2], -1))
    beside = (beside if told is None else xp.concat([beside, told], axis=-1))[..., None, :]
    rest = xp.zeros((*theta.shape[:-2], theta.shape[-2] - 1, beside.shape[-1]), dtype=theta.dtype)
    return xp.concat([theta, xp.concat([WEIGHT_SCALE * beside, rest], axis=-2)], axis=-1)


def split_weights(joined: Array, views: int = 1, told: int = 0) -> tuple[Array, Array, Array]:
    """Return models, log weights and what else was told of what ``append_weights`` returned."""
    n = joined.shape[-1] - views - told
    beside = joined[..., 0, n:] / WEIGHT_SCALE
    weights = namespace(joined).reshape(beside[..., :views], (*joined.shape[:-3], -1))
    return joined[..., :n], weights, beside[..., views:]


def emit(
    theta: Array, hidden: Array, quantizer: Quantizer, uniforms: Array | None, sent: Array | None = None
) -> Message:
    """Return q = Q(theta - h_j), line 9; each of the P x C rows is quantized as a vector of 2D elements.

    ``sent`` says which kernels are, ``(..., P)``: of the others q is zero. None sends them all.
    """
    difference = theta - hidden
    if sent is not None:
        xp = namespace(difference)
        difference = xp.where(sent[..., None, None], difference, xp.zeros_like(difference))
    return quantizer.quantize(difference, uniforms)


def absorb(hidden: Array, message: Message) -> Array:
    """Return h + q, line 12; bit for bit the same on every node that absorbs the same messages."""
    return hidden + restore(message)


def predict(theta: Array, log_weights: Array, z: Array, readings: Array | None = None) -> Prediction:
    """Return the outputs f_p = theta_p . z_p(x) and their weighted mean, lines 3, 4 and 6.

    With ``readings (..., P, V, n)`` every model is read in V ways, its coefficients multiplied by each: there are P V
    outputs, and as many weights.
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
    """Return ln w_p - rate * L(theta_p), line 5; the letter's rate is eta.

    Shifted so that the largest is zero: only differences matter, and they keep their digits over a long stream. With
    ``most``, a kernel's loss counts as at most so much above the best one's.
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
    """Return theta' = theta - eta grad L(theta), line 14, or what the learner makes of the gradient.

    One that has a prior is given that of C alone. A sample of ``weight (...)`` has its loss times that; ``reach (...)``
    says how many nodes' samples a step stands for, and ``alike (..., P)`` how alike those are.
    """
    slope = gradient(theta, kernel_outputs, z, y, loss, 0.0 if learner.has_prior else regularization)
    if weight is not None:
        slope = weight[..., None, None, None] * slope
    return learner.update(theta, memory, slope, z, Sample(kernel_outputs, y[..., None, :], loss, weight, reach, alike))


def normalize(log_weights: Array) -> Array:
    """Return the kernel weights wbar_p, which sum to one."""
    weights = namespace(log_weights).exp(log_weights - short_max(log_weights))
    return weights / short_sum(weights)
