"""Settings by name."""

import omkl


def test_the_letter_is_what_gossip_is_by_default() -> None:
    assert omkl.letter() == omkl.Gossip()


def test_the_recommended_setting_on_banana() -> None:
    """Twenty seeds gave 0.2802 with a standard deviation of 0.0023, and 59.1 bytes (docs/bits.md)."""
    summary = omkl.simulate("banana", "path", nodes=20, method=omkl.recommended(), seeds=2).summary()
    assert 0.274 < summary["loss"] < 0.287
    assert summary["bits_per_node_round"] < 8 * 64
