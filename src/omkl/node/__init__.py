"""One node of a real network: it learns from its own stream and gossips with its neighbors."""
