"""The state of a method as the compiled loops hold it, and back."""

from typing import Any

import numpy as np

from omkl.algorithm import State
from omkl.compiled.jit import Floats
from omkl.compiled.learners import Memory
from omkl.compiled.rounds import Method, Nodes
from omkl.learners.pooled import PooledMemory
from omkl.learners.rules import NewtonMemory, SharedMemory
from omkl.reach import Hearing
from omkl.storage import mapped


def gathered(state: State, s: Method) -> tuple[Nodes, Floats]:
    """Return copies of the arrays of nodes ``(J, ...)``, or of one node, and their hidden states ``(J, N)``."""
    if state.theta.ndim == 3:
        state = mapped(lambda part: np.asarray(part)[None], state)
    nodes = len(state.theta)
    own = np.zeros((nodes, s.kernels * s.outputs, s.m), np.float32)
    own[..., : s.n] = state.theta.reshape(nodes, -1, s.n)
    velocity, heard = _flat(state.velocity, nodes), state.hearing
    said, counts, alike = np.empty((nodes, 0), np.float32), np.ones((nodes, 2), np.float32), _empty(nodes, 3)
    if isinstance(heard, Hearing):
        said, counts = _flat(heard.said, nodes), _columns(heard.rounds, heard.share)
        alike = _columns(heard.before, heard.apart, heard.due)
    weights, memory = _flat(state.log_weights, nodes), _memory(state, nodes)
    return Nodes(own.reshape(nodes, -1), velocity, weights, said, counts, alike, memory), _flat(state.hidden, nodes)


def scattered(nodes: Nodes, hidden: Floats, like: State, s: Method) -> State:
    """Return copies of the arrays as the method states them, shaped like an earlier state."""
    shape = like.theta.shape
    heard = like.hearing
    if isinstance(heard, Hearing):
        parts = (*nodes.heard.T, nodes.said, *np.moveaxis(nodes.alike, -1, 0))
        heard = Hearing(*(part.reshape(old.shape).copy() for part, old in zip(parts, heard, strict=True)))
    return State(
        nodes.own.reshape(*shape[:-1], s.m)[..., : s.n].copy(),
        hidden.reshape(like.hidden.shape).copy(),
        nodes.log_weights.reshape(like.log_weights.shape).copy(),
        _remembered(nodes.memory, like.memory),
        nodes.velocity.reshape(like.hidden.shape).copy() if len(like.velocity) else (),
        like.moved,
        heard,
    )


def _memory(state: State, nodes: int) -> Memory:
    made = Memory(
        counts=np.zeros((nodes, 2), np.float32),
        noted=_empty(nodes, 2),
        last=_empty(nodes, 0),
        squares=_empty(nodes, 0),
        root=np.empty((nodes, 0, 0, 0, 0), np.float32),
        trace=np.empty((nodes, 0), np.float32),
    )
    match state.memory:
        case PooledMemory() as memory:
            last = np.array(memory.last, np.float32).reshape(nodes, *memory.last.shape[-2:])
            noted = _columns(memory.log_curvature, memory.alike)
            return made._replace(counts=_columns(memory.own, memory.count), noted=noted, last=last)
        case SharedMemory() as memory:
            return made._replace(counts=_columns(memory.count, memory.count))
        case NewtonMemory() as memory:
            root = np.array(memory.root, np.float32).reshape(nodes, -1, *memory.root.shape[-3:])
            return made._replace(root=root, trace=_flat(memory.trace, nodes))
        case (squares,) if squares.shape == state.theta.shape:
            return made._replace(squares=np.array(squares, np.float32).reshape(nodes, -1, squares.shape[-1]))
        case (count,):
            return made._replace(counts=_columns(count, count))
    return made


def _remembered(memory: Memory, like: Any) -> Any:
    own, count = memory.counts.T

    def shaped(part: Floats, old: Any) -> Floats:
        return part.reshape(old.shape).copy()

    match like:
        case PooledMemory():
            log_curvature, alike = np.moveaxis(memory.noted, -1, 0)
            return PooledMemory(
                shaped(own, like.own), shaped(count, like.count), like.spectrum,
                shaped(log_curvature, like.log_curvature), shaped(memory.last, like.last), shaped(alike, like.alike),
            )  # fmt: skip
        case SharedMemory():
            return like._replace(count=shaped(own, like.count))
        case NewtonMemory():
            return like._replace(root=shaped(memory.root, like.root))
        case (squares,) if memory.squares.size:
            return (shaped(memory.squares, squares),)
        case (old,):
            return (shaped(own, old),)
    return like


def _flat(array: Any, nodes: int) -> Floats:
    """Return a copy as ``(J, ...)`` rows; of what is absent, rows without columns."""
    return np.array(array, np.float32).reshape(nodes, -1)


def _columns(*parts: Any) -> Floats:
    """Return arrays ``(J, ...)`` side by side along a new last axis."""
    return np.stack([np.asarray(part, np.float32) for part in parts], axis=-1)


def _empty(nodes: int, last: int) -> Floats:
    return np.empty((nodes, 0, last), np.float32)
