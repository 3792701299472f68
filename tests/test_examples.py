"""The examples, in short."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_five_sensors_know_what_the_others_saw() -> None:
    losses = np.array(load("five_sensors").main(rounds=80))
    assert losses.shape == (5, 2)
    assert (losses[:, 1] < losses[:, 0]).all()
    assert losses[:, 1].max() < np.log(2)
