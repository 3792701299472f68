"""A node says when its inputs are in units that its method does not expect."""

from typing import Any

import numpy as np
import pytest

from omkl.node.daemon import LONG, MANY, PILE, Backlog
from omkl.node.events import Adopted, Recovered
from omkl.node.journal import Journal
from omkl.node.protocol import Protocol
from omkl.node.runtime import Observation
from omkl.node.units import ROWS, Units
from tests.node_cluster import config


def told(caplog: pytest.LogCaptureFixture, inputs: Any, **settings: Any) -> list[str]:
    network = config(1, **settings)
    units = Units(Protocol(network.role(network.ids[0]), 1, 0.0), Journal("a", {}))
    for x in inputs:
        units.tap(Observation(x, None), [])
    return [record.omkl["event"] for record in caplog.records]  # type: ignore[attr-defined]


def columns(*units: tuple[float, float], rows: int = ROWS) -> Any:
    rng = np.random.default_rng(0)
    return np.stack([rng.normal(mean, deviation, size=rows) for mean, deviation in units], axis=1)


@pytest.mark.parametrize("units", [((20, 5), (0, 1)), ((0, 1), (0, 400)), ((0.001, 0.0003), (0, 1)), ((7, 0), (0, 1))])
def test_raw_inputs_are_told_once(units: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, columns(*units, rows=3 * ROWS)) == ["units"]
    assert "standardize = true" in caplog.messages[0]
    assert caplog.messages[0].endswith("omkl node reset on each")  # the checkpoints do not fit any more


@pytest.mark.parametrize("event", [Recovered("b", 40), Adopted(("b",))])
def test_a_node_whose_models_came_from_others_has_no_scale_yet(
    event: Recovered | Adopted, caplog: pytest.LogCaptureFixture
) -> None:
    for standardize, seen, expected in ((True, 0, ["rescaled"]), (True, ROWS, []), (False, 0, [])):
        protocol = Protocol(config(1, standardize=standardize).role("a"), 1, 0.0)
        for x in columns((20, 5), (0, 1), rows=seen):
            protocol.learning._count(x)
        caplog.clear()
        Units(protocol, Journal("a", {})).watch(event)
        assert [record.omkl["event"] for record in caplog.records] == expected  # type: ignore[attr-defined]


def test_what_waits_for_long_is_told_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    backlog = Backlog(Journal("a", {}), clock=lambda: now)
    told = []
    for second in range(400):
        now = float(second)
        backlog.look(0 if second == 20 else MANY, 30.0, 0, "lockstep")
        told += [second] if caplog.records else []
        caplog.clear()
    assert told == [50, 110, 230]
    backlog.look(0, 0.0, 0, "lockstep")
    now += LONG
    backlog.look(MANY, 1.0, PILE - 1, "lockstep")  # young, and few behind it
    now += LONG
    backlog.look(MANY, 1.0, PILE, "lockstep")
    assert ": 16 wait, the oldest for 1 s, and 32,768 bytes in the pipe for longer; the slowest" in caplog.messages[0]
    assert 'mode = "timer" under [timing] and pace = false under [learning.method]' in caplog.messages[0]


@pytest.mark.parametrize("units", [((0.5, 2), (-1, 0.5)), ((0, 0), (0, 1))])
def test_inputs_about_0_and_1_are_not_told(units: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, columns(*units)) == []


def test_standardized_inputs_may_be_anything(caplog: pytest.LogCaptureFixture) -> None:
    assert told(caplog, columns((20, 5), (0, 900)), standardize=True) == []
