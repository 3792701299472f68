"""Settings by name."""

import pytest

import omkl
from omkl import methods
from omkl.errors import InputError
from omkl_lab import sweeps


def test_the_letter_is_what_gossip_is_by_default() -> None:
    assert omkl.letter() == omkl.Gossip()


def test_presets_and_classes_go_by_name() -> None:
    assert methods.named(None) == omkl.recommended()
    assert {name: methods.named(name) for name in methods.PRESETS} == {
        "recommended": omkl.recommended(),
        "frugal": omkl.frugal(),
        "letter": omkl.letter(),
    }
    assert methods.named("local") == omkl.Local()
    assert sweeps.point({"data": "banana"}).id == sweeps.point({"data": "banana", "method": "recommended"}).id
    with pytest.raises(InputError, match="unknown method 'recomended'; did you mean 'recommended'"):
        methods.named("recomended")


def test_the_recommended_setting_on_banana() -> None:
    """Twenty seeds in each of five orders gave 0.2567, and 29.8 bytes (docs/bits.md)."""
    summary = omkl.simulate("banana", "path", nodes=20, seeds=2).summary()
    assert 0.245 < summary["loss"] < 0.268
    assert 8 * 28 < summary["bits_per_node_round"] < 8 * 32
