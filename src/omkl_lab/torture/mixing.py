"""What the algorithm makes of a network in rounds of gossip alone, from the states that its nodes have."""

from collections.abc import Iterator, Mapping

import numpy as np

from omkl.methods import eager
from omkl.node.config import NetworkConfig
from omkl.node.learning import Heard
from omkl.node.protocol import Protocol


class Mixing:
    """The models, hidden states and velocities of all nodes, and the rounds they had taken.

    Attributes
    ----------
    rounds
        By node.
    """

    def __init__(self, config: NetworkConfig, nodes: Mapping[str, Protocol]) -> None:
        self._method, self._ids = config.method, config.ids
        self._peers = [[config.ids.index(peer) for peer in nodes[id].role.neighbors] for id in config.ids]
        self._weights = [np.array(list(nodes[id].role.neighbors.values()), dtype=np.float32) for id in config.ids]
        self._states = [nodes[id].learning.state for id in config.ids]
        self._dither = eager.dither(config.method, len(config.ids), self._states[0].theta.shape[-2], config.seed)
        self.rounds = {id: nodes[id].round for id in config.ids}

    def after(self, rounds: int) -> Iterator[np.ndarray]:
        """Yield the models of all nodes as they are, and after each of so many rounds that all take together."""
        states, begun = self._states, np.array([self.rounds[id] for id in self._ids])
        yield np.array([state.theta for state in states], dtype=np.float64)
        for k in range(rounds):
            hidden, dither = np.array([state.hidden for state in states]), self._dither(begun[:, None] + k)
            states = [
                self._method.gossip(
                    state,
                    None if dither is None else dither[j],
                    Heard(hidden[self._peers[j]], self._weights[j]),
                    int(begun[j]) + k,
                )[0]
                for j, state in enumerate(states)
            ]
            yield np.array([state.theta for state in states], dtype=np.float64)
