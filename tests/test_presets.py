"""Settings by name."""

import pytest

import omkl
from omkl import methods
from omkl.errors import InputError
from omkl_lab import sweeps


def test_the_paper_is_what_gossip_is_by_default() -> None:
    assert omkl.paper() == omkl.Gossip()


def test_presets_and_classes_go_by_name() -> None:
    assert methods.named(None) == omkl.recommended()
    assert {name: methods.named(name) for name in methods.PRESETS} == {
        "recommended": omkl.recommended(),
        "frugal": omkl.frugal(),
        "paper": omkl.paper(),
    }
    assert methods.named("local") == omkl.Local()
    assert sweeps.point({"data": "banana"}).id == sweeps.point({"data": "banana", "method": "recommended"}).id
    with pytest.raises(InputError, match="unknown method 'recomended'; did you mean 'recommended'"):
        methods.named("recomended")


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
