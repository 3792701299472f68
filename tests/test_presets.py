"""Settings by name."""

from collections.abc import Callable

import numpy as np
import pytest

import omkl
from omkl import config, methods
from omkl.errors import InputError
from omkl.experiment import label
from omkl_lab import sweeps


def test_the_paper_is_what_gossip_is_by_default() -> None:
    assert omkl.paper() == omkl.Gossip()


def test_presets_and_classes_go_by_name() -> None:
    assert methods.named(None) == omkl.recommended()
    assert {name: make() for name, make in methods.PRESETS.items()} == {
        "recommended": omkl.recommended(),
        "frugal": omkl.frugal(),
        "paper": omkl.paper(),
        "alone": omkl.alone(),
    }
    assert methods.named("local") == omkl.Local()
    assert sweeps.point({"data": "banana"}).id == sweeps.point({"data": "banana", "method": "recommended"}).id
    with pytest.raises(InputError, match="unknown method 'recomended'; did you mean 'recommended'"):
        methods.named("recomended")


def test_alone_is_the_default_without_messages() -> None:
    best, alone = omkl.recommended(), omkl.alone()
    assert {name: value for name, value in best.settings().items() if name in alone.known()} == alone.settings()
    assert (label(alone), label(omkl.Local()), label(omkl.Local(eta=1.0))) == ("alone", "local", "local, eta=1")
    assert config.method("alone") == config.method({"name": "alone"}) == alone
    assert omkl.alone(loss="squared").objective == omkl.Squared()
    cases = {"together": (best, "path"), "alone": (alone, "path")}
    results = omkl.compare("banana", cases, nodes=20, rounds=60)
    assert results["alone"].bits.sum() == 0
    assert results["together"].loss.mean() < 0.8 * results["alone"].loss.mean()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: omkl.recommended(gamma=0),
        lambda: omkl.simulate("banana", np.zeros((3, 3)), rounds=2),
    ],
)
def test_who_looks_for_nodes_that_never_talk_is_told_of_alone(wrong: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r"omkl\.alone\(\)"):
        wrong()


@pytest.mark.parametrize("data", ["banana", "digits"])
def test_a_stream_of_fifty_samples_stays_within_the_budget(data: str) -> None:
    """Measured: 47.8 and 47.9 bytes a sample, frugal 15.0 and 15.7; longer streams have less a sample."""
    for method, most in ((omkl.recommended(), 48), (omkl.frugal(), 16)):
        sent = omkl.simulate(data, "path", nodes=20, rounds=50, seeds=2, method=method).summary()
        assert 0.9 * 8 * most < sent["bits_per_node_round"] <= 8 * most


def test_the_recommended_setting_on_banana() -> None:
    """Twenty seeds in each of five orders gave 0.2470, and 25.5 bytes (docs/bits.md)."""
    summary = omkl.simulate("banana", "path", nodes=20, seeds=2).summary()
    assert 0.238 < summary["loss"] < 0.26
    assert 8 * 24 < summary["bits_per_node_round"] < 8 * 27
