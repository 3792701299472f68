from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import omkl
from omkl.errors import InputError
from omkl.simulator import engine
from omkl.simulator import size as sizes
from omkl.simulator.size import Size, size
from omkl.topology import build

SMALL = omkl.Gossip(kernels=omkl.gaussian(1, 2), features=4)


def on(topology: str, nodes: int, method: Any = SMALL, seeds: int = 2, **more: bool) -> Size:
    return size((5, nodes, 6), 1, [method], [build(topology, nodes)], seeds, **more)


def test_size_by_hand() -> None:
    model = 4 * 2 * 2 * 8  # bytes of a node: two seeds, two kernels, eight features
    assert on("path", 3) == Size(
        state=3 * (2 * model + 4 * 2 * 2),
        rounds=3 * 3 * model + 5 * 3 * model // 2,
        inputs=4 * 5 * 3 * (6 + 1),
        records=5 * 2 * (2 * 4 * (5 + 2) + 16),
        features=4 * 2 * 2 * 4 * 6,
        network=24 * 2,
    )


def test_what_a_size_grows_with() -> None:
    assert on("ring", 100).state == 10 * on("ring", 10).state
    assert on("ring", 10, seeds=6).state == 3 * on("ring", 10).state
    assert on("ring", 10, pooled=True).rounds - on("ring", 10).rounds == 2 * 4 * 10 * 10 * 2
    assert on("complete", 200).rounds == on("ring", 200).rounds  # a product copies nobody
    assert on("star", 201).rounds - on("ring", 201).rounds == 2 * 200 * 128  # every link's
    clipped = SMALL.replace(clip=0.35)
    assert on("ring", 10, clipped).rounds - on("ring", 10).rounds == 10 * 128  # a neighbor's, for every node
    assert on("complete", 200, clipped).rounds - on("ring", 200).rounds == 200 * 199 * 128  # every link's
    method = omkl.Complete(kernels=SMALL.bank.kernels, features=4)
    assert on("complete", 10, method).state < on("complete", 10).state / 10  # one model in common
    both = size((5, 10, 6), 1, [SMALL, SMALL], [build("ring", 10)] * 2, 2)
    assert both.state == 2 * on("ring", 10).state


def test_a_state_is_as_large_as_said(rng: np.random.Generator) -> None:
    X = rng.standard_normal((3, 6, 6), dtype=np.float32)
    result = omkl.simulate((X, np.sign(X[..., 0])), "ring", method=SMALL, seeds=2)
    assert on("ring", 6).state == 2 * result.theta.nbytes + result.log_weights.nbytes


def test_a_run_too_large_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "room", lambda devices: 2**20)
    monkeypatch.setattr(engine, "run", lambda *_: pytest.fail("it ran"))
    data = np.ones((4, 10, 2)), np.ones((4, 10))
    with pytest.raises(InputError, match=r"holds 3\d\.\d MiB .*must fit the 1\.0 MiB that .*; use fewer seeds"):
        omkl.simulate(data, "ring", method=omkl.paper(), seeds=1000)


def test_inputs_are_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "room", lambda devices: 100)
    sizes.require_room(Size(50, 50, 10**9, 0, 0, 0))
    with pytest.raises(InputError):
        sizes.require_room(Size(50, 51, 0, 0, 0, 0))


def test_room_is_that_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    here = sizes.room()
    assert here is None or 2**20 < here < 2**50
    device = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 12345})
    monkeypatch.setattr(sizes, "has_accelerator", lambda: True)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert sizes.room() == 12345
    device.memory_stats = lambda: None
    assert sizes.room() is None
