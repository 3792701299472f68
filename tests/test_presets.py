"""Settings by name."""

import omkl


def test_the_letter_is_what_gossip_is_by_default() -> None:
    assert omkl.letter() == omkl.Gossip()


def test_the_recommended_setting_on_banana() -> None:
    """Twenty seeds gave 0.2730 with a standard deviation of 0.0025, and 76.3 bytes (docs/bits.md)."""
    summary = omkl.simulate("banana", "path", nodes=20, method=omkl.recommended(), seeds=2).summary()
    assert 0.266 < summary["loss"] < 0.280
    assert 8 * 73 < summary["bits_per_node_round"] < 8 * 80
