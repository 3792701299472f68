"""Rounds of a whole network under one seed, and what is measured of them."""

from typing import NamedTuple

import numpy as np

from omkl.compiled import losses, rounds
from omkl.compiled.arithmetic import ZERO, dither
from omkl.compiled.jit import Doubles, Floats, Whole, Words, entry, inner, summed
from omkl.compiled.lending import borrowed
from omkl.compiled.quantizers import QSGD

LOSS, SCORE, DISAGREEMENT, WEIGHTS = range(4)  # columns of what is recorded; the weights of the models are the last
SENT, CARRIED = range(2)  # columns of the traffic, in bytes


class Links(NamedTuple):
    """Whom each node hears: node j hears ``ids[start[j] : start[j + 1]]``."""

    start: Whole
    ids: Whole
    weights: Floats
    """``(T, E)``, a row for every sample, or one row for all."""
    share: Floats
    """How much of its links each node hears, ``(T, J)``, likewise."""


class Records(NamedTuple):
    """What is measured: sums over nodes until a round is finished, and then means."""

    measured: Doubles
    """``(rows, 3 + W)``."""
    traffic: Doubles
    """``(rows, 2)``."""
    pending: Doubles
    """The traffic since the last round that was measured, ``(2,)``."""
    reference: Floats
    """The models of one node, ``(P * C, n)``: distances are taken from them, which is where models are near."""
    away: Doubles
    """Sums of distances from the reference, ``(P * C, n)``."""


class Span(NamedTuple):
    """Samples of nodes ``first`` to ``last``, of which the first is number ``t`` of each."""

    t: int
    first: int
    last: int
    every: int
    """Each so many samples, the network is measured."""
    averages: bool
    """Whether traffic is that of a mean sample since the last measured one, or that of the measured one itself."""


@inner
def _charge(s: rounds.Method, links: Links, weights: Floats, j: int, pending: Doubles, k: rounds.Room) -> None:
    """Add the bytes of a node's message, if somebody hears it, and once for each who does."""
    hearers = 0
    for i in range(links.start[j], links.start[j + 1]):
        hearers += weights[i] != ZERO
    if hearers:
        size = rounds.price(s, k)
        pending[SENT] += size
        pending[CARRIED] += hearers * size


@inner
def _gossip(
    s: rounds.Method, nodes: rounds.Nodes, hidden: Floats, links: Links, keys: Words, radii: Floats, round_: int,
    t: int, span: Span, pending: Doubles, k: rounds.Room,
) -> None:  # fmt: skip
    """Take nodes through one round of gossip that goes with sample t, the first of the links' being number 0.

    Hidden states are ``(2, J, N)``: those of even and odd rounds.
    """
    before, after = hidden[round_ % 2], hidden[(round_ + 1) % 2]
    weights, share = links.weights[min(t, len(links.weights) - 1)], links.share[min(t, len(links.share) - 1)]
    radius = radii[min(round_, len(radii) - 1)]
    for j in range(span.first, span.last):
        if s.quantizer == QSGD:
            dither(keys[j], round_, k.uniforms)
        part = slice(links.start[j], links.start[j + 1])
        ids = links.ids[part]
        rounds.gossip(
            s, nodes, j, before[j], before, ids, weights[part], radius, share[j], k.uniforms, after[j], k
        )  # fmt: skip
        _charge(s, links, weights, j, pending, k)


@summed
def _spread(model: Floats, reference: Floats, away: Doubles) -> np.float32:
    """Add up how far a model lies from the reference, and return the square of that distance."""
    squares = ZERO
    for i in range(len(reference)):
        apart = model[i] - reference[i]
        away[i] += apart
        squares += apart * apart
    return squares


@inner
def _finish(nodes: int, away: Doubles, sums: Doubles) -> None:
    """Turn sums over nodes into means, and distances from a reference into the disagreement."""
    for k in range(len(sums)):
        sums[k] /= nodes
    for row in range(away.shape[0]):
        for i in range(away.shape[1]):
            mean = away[row, i] / nodes
            sums[DISAGREEMENT] -= mean * mean
    sums[DISAGREEMENT] = np.sqrt(max(sums[DISAGREEMENT], 0.0))


@inner
def _learn(
    s: rounds.Method, nodes: rounds.Nodes, z: Floats, y: Floats, span: Span, is_measured: bool, records: Records,
    sums: Doubles, k: rounds.Room,
) -> None:  # fmt: skip
    """Take nodes through a sample each, of features ``(J, P, n)`` and targets ``(J, C)``; add what is measured."""
    for j in range(span.first, span.last):
        if is_measured:
            for row in range(len(records.reference)):
                model = nodes.own[j, row * s.m : row * s.m + s.n]
                sums[DISAGREEMENT] += _spread(model, records.reference[row], records.away[row])
        loss = rounds.observe(s, nodes, j, z[j - span.first], y[j - span.first], k)
        if is_measured:
            sums[LOSS] += loss
            sums[SCORE] += losses.score(s.rule.loss, k.output, y[j - span.first])
            for p in range(len(k.weights)):
                sums[WEIGHTS + p] += k.weights[p]


@inner
def begin(s: rounds.Method, own: Floats, records: Records) -> None:
    """Take the models of a node for the reference of a round."""
    for row in range(len(records.reference)):
        for i in range(s.n):
            records.reference[row, i] = own[row * s.m + i]
            records.away[row, i] = 0


@entry
def advance(
    s: rounds.Method, nodes: rounds.Nodes, hidden: Floats, links: Links, keys: Words, radii: Floats, starts: Whole,
    z: Floats, y: Floats, span: Span, records: Records, k: rounds.Room,
) -> None:  # fmt: skip
    """Take all nodes through samples ``(T, J, ...)``; before sample t they gossip in rounds ``starts[t : t + 2]``."""
    s, nodes, hidden, links, k = borrowed(s), borrowed(nodes), borrowed(hidden), borrowed(links), borrowed(k)
    span, records, z, y = borrowed(span), borrowed(records), borrowed(z), borrowed(y)
    for t in range(len(z)):
        number = span.t + t
        row = number // span.every - span.t // span.every
        if not span.averages:
            records.pending[0] = records.pending[1] = 0
        for round_ in range(starts[t], starts[t + 1]):
            _gossip(s, nodes, hidden, links, keys, radii, round_, t, span, records.pending, k)
        is_measured = (number + 1) % span.every == 0
        sums = records.measured[min(row, len(records.measured) - 1)]  # of samples that are not measured there is none
        if is_measured:
            begin(s, nodes.own[0], records)
            for i in range(len(sums)):
                sums[i] = 0
        _learn(s, nodes, z[t], y[t], span, is_measured, records, sums, k)
        if is_measured:
            finish(span.last, records, row, span.every if span.averages else 1)


@inner
def finish(nodes: int, records: Records, row: int, samples: int) -> None:
    """Write down a round that was measured."""
    _finish(nodes, records.away, records.measured[row])
    for k in range(2):
        records.traffic[row, k] = records.pending[k] / samples
        records.pending[k] = 0


@entry
def gossip(
    s: rounds.Method, nodes: rounds.Nodes, hidden: Floats, links: Links, keys: Words, radii: Floats, round_: int,
    t: int, span: Span, pending: Doubles, k: rounds.Room,
) -> None:  # fmt: skip
    """Take some nodes through a round of gossip."""
    s, nodes, links, span, k = borrowed(s), borrowed(nodes), borrowed(links), borrowed(span), borrowed(k)
    _gossip(s, nodes, borrowed(hidden), links, keys, radii, round_, t, span, pending, k)


@entry
def learn(
    s: rounds.Method, nodes: rounds.Nodes, z: Floats, y: Floats, span: Span, is_measured: bool, records: Records,
    sums: Doubles, k: rounds.Room,
) -> None:  # fmt: skip
    """Take some nodes through a sample each."""
    s, nodes, span, records, k = borrowed(s), borrowed(nodes), borrowed(span), borrowed(records), borrowed(k)
    _learn(s, nodes, borrowed(z), borrowed(y), span, is_measured, records, sums, k)
