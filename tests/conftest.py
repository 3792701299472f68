"""Fixtures for the whole suite: the array libraries the core must run on."""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import array_api_strict
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest

hypothesis.settings.register_profile("omkl", deadline=None, derandomize=True)
hypothesis.settings.load_profile("omkl")

os.environ["OMKL_CACHE"] = "off"  # of compiled programs: tests leave the user's alone
jax.config.update("jax_numpy_dtype_promotion", "strict")  # type: ignore[no-untyped-call]


class Library(NamedTuple):
    """An array library and a way to call a function of the core on it."""

    xp: ModuleType
    jitted: bool

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Convert the NumPy arrays in ``args``, call, and convert back."""
        arrays = jax.tree.map(lambda a: self.xp.asarray(a) if isinstance(a, np.ndarray) else a, args, is_leaf=_is_array)
        result = (jax.jit(function) if self.jitted else function)(*arrays)
        return jax.tree.map(np.asarray, result, is_leaf=lambda leaf: hasattr(leaf, "__array_namespace__"))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray)


@pytest.fixture(params=["numpy", "strict", "jax", "jit"])
def library(request: pytest.FixtureRequest) -> Library:
    modules = {"numpy": np, "strict": array_api_strict, "jax": jnp, "jit": jnp}
    return Library(modules[request.param], request.param == "jit")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
