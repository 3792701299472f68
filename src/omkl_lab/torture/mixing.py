"""Computes, by the algorithm itself, the models after some rounds of gossip without learning."""

from collections.abc import Iterable, Mapping

import numpy as np

from omkl.methods import eager
from omkl.node.config import NetworkConfig
from omkl.node.events import Gossiped
from omkl.node.halves import Floats, Heard
from omkl.node.protocol import Protocol
from omkl_lab.torture.trace import Entry

ROUNDING = 2**-23  # of a number in single precision


class Mixing:
    """The models, hidden states and velocities of all nodes, and the rounds they had taken.

    Attributes
    ----------
    rounds
        By node.
    """

    def __init__(
        self, config: NetworkConfig, nodes: Mapping[str, Protocol], delay: float, before: Iterable[Entry]
    ) -> None:
        self._config, self._delay = config, delay
        self._states = {id: nodes[id].learning.state for id in config.ids}
        self._last = {who: now for now, who, what in before if isinstance(what, Gossiped)}
        self._held = {
            id: dict(zip(nodes[id].role.neighbors, nodes[id].neighbors.copies.copy(), strict=True)) for id in config.ids
        }
        self._neighbors = {id: nodes[id].role.neighbors for id in config.ids}
        self.rounds = {id: nodes[id].round for id in config.ids}

    def after(self, happened: Iterable[Entry], jitter: int | None = None) -> np.ndarray:
        """Return the models of all nodes after the rounds that they took, each at its time, with nobody left out.

        With ``jitter``, a seed, models begin a rounding error away.
        """
        method, ids, states = self._config.method, self._config.ids, dict(self._states)
        if jitter is not None:
            draw = np.random.default_rng(jitter).standard_normal
            for id, state in states.items():
                theta = state.theta * (1 + ROUNDING * draw(state.theta.shape))
                states[id] = state._replace(theta=theta.astype(state.theta.dtype))
        dither = eager.dither(method, len(ids), states[ids[0]].theta.shape[-2], self._config.seed)
        said = {id: [(self._last.get(id, -np.inf), state.hidden)] for id, state in states.items()}
        for now, id, what in happened:
            if not isinstance(what, Gossiped):
                continue
            round_ = what.round - 1
            copies = np.array([self._copy(said[peer], id, peer, round_, now) for peer in self._neighbors[id]])
            heard = Heard(copies, np.array(list(self._neighbors[id].values()), dtype=np.float32))
            uniforms = dither(round_)
            own = None if uniforms is None else uniforms[ids.index(id)]
            states[id], _ = method.gossip(states[id], own, heard, round_)
            said[id].append((now, states[id].hidden))
        return np.array([states[id].theta for id in ids], dtype=np.float64)

    def _copy(self, said: list[tuple[float, Floats]], id: str, peer: str, round_: int, now: float) -> Floats:
        """Return the hidden state of a neighbor that a round mixes: in lock step its last one, by timer what came.

        What was on its way at the beginning has yet to come: until then it is what the node held.
        """
        if self._config.timing.mode == "lockstep":
            since = round_ - self.rounds[peer]
            return said[since][1] if since >= 0 else self._held[id][peer]  # its neighbor had begun the next round
        came = (hidden for then, hidden in reversed(said) if then + self._delay <= now)
        return next(came, self._held[id][peer])
