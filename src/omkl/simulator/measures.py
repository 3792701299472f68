"""What the simulator records of a round. Every measure returns a NamedTuple, its first field the loss."""

from typing import NamedTuple

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.methods import Info, Method, Round
from omkl.methods.protocol import MethodState


class Metrics(NamedTuple):
    """Means over nodes, ``(S,)``, of which ``weights`` has P; and sums, in bytes.

    The sums are float32: exact below 2^24, beyond that to seven digits.
    """

    loss: Array
    accuracy: Array
    disagreement: Array
    weights: Array
    sent: Array
    """By all nodes that somebody hears."""
    carried: Array
    """Over all directed links."""
    pooled_loss: Array | tuple[()] = ()
    """Of every node's model on all nodes' samples, where that is asked for."""


def metrics(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> Metrics:
    """Return loss, accuracy, disagreement and kernel weights of the models that predicted, and what was sent."""
    xp = namespace(info.loss)
    # Over nodes first: along the outermost axis it vectorizes, and what is left is small. In one pass, from a node.
    apart = info.theta - info.theta[:1]
    spread = xp.mean(apart * apart, axis=0) - xp.mean(apart, axis=0) ** 2
    hearers = xp.reshape(xp.asarray(degrees, dtype=xp.float32), (len(degrees), -1))  # one column, or one a seed
    return Metrics(
        xp.mean(info.loss, axis=0),
        xp.mean(method.objective.score(info.output, given.y), axis=0),
        xp.sqrt(xp.clip(xp.sum(spread, axis=(-3, -2, -1)), 0, None)),
        xp.mean(algorithm.normalize(info.log_weights), axis=0),
        xp.sum(xp.minimum(hearers, 1) * info.message_bytes, axis=0),
        xp.sum(hearers * info.message_bytes, axis=0),
    )


def pooled_metrics(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> Metrics:
    """Return ``metrics`` and the mean over nodes of each model's loss on the samples of all nodes."""
    return metrics(method, given, info, degrees, state)._replace(pooled_loss=pooled_loss(method, given, info))


def pooled_loss(method: Method, given: Round, info: Info) -> Array:
    """Return the mean over nodes of each model's loss on the samples of all nodes, ``(S,)``."""
    xp = namespace(info.loss)
    # The ensemble is linear in its weighted models: what model j says to sample i is one product over kernels.
    weights = algorithm.normalize(info.log_weights)
    if info.readings is None:
        models = weights[..., None, None] * info.theta
    else:  # all readings of a model as one
        each = weights.reshape(info.readings.shape[:-1])[..., None] * info.readings
        models = xp.sum(each, axis=-2)[..., None, :] * info.theta
    outputs = xp.einsum("jspcd,ispd->jisc", models, given.z)
    return xp.mean(method.objective.value(outputs, given.y), axis=(0, 1))
