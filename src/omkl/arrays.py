"""The array type of the core and the namespace it brings along."""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""Any array of the Python Array API standard: NumPy on a node, JAX in the simulator."""


def namespace(array: Array) -> Any:
    """Return the module whose functions work on ``array``."""
    return array.__array_namespace__()
