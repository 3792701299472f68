"""Theory: spectral gap, contraction, regret bounds, and what they say about a given network."""

from omkl.theory.bounds import (
    Contraction,
    RegretTerms,
    beta,
    consensus_bound,
    consensus_step,
    contraction,
    gossip_factor,
    printed_terms,
    regret_terms,
    spectral_gap,
)
from omkl.theory.explanation import Assumption, Explanation, explain

__all__ = [
    "Assumption",
    "Contraction",
    "Explanation",
    "RegretTerms",
    "beta",
    "consensus_bound",
    "consensus_step",
    "contraction",
    "explain",
    "gossip_factor",
    "printed_terms",
    "regret_terms",
    "spectral_gap",
]
