import numpy as np
import pytest

import omkl
from omkl.plots import figure, moving_average, plot_loss, plot_partition


def test_moving_average_by_hand() -> None:
    curve = np.array([1.0, 2.0, 6.0, 4.0])
    np.testing.assert_allclose(moving_average(curve, 1), curve)
    np.testing.assert_allclose(moving_average(curve, 3), [1.5, 3.0, 4.0, 5.0])
    np.testing.assert_allclose(moving_average(curve, 100), curve.mean())


@pytest.mark.parametrize("against", ["rounds", "bits"])
def test_loss_is_drawn_with_its_interval(against: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3, 2)), np.sign(rng.normal(size=(12, 3)))
    result = omkl.simulate((X, y), "path", method=omkl.Gossip(eta=1.0), seeds=4)
    _, (axes,) = figure()
    assert plot_loss(axes, result, label="mine", against=against) is axes
    (line,), (band,) = axes.lines, axes.collections
    progressive = np.cumsum(result.loss, axis=1) / np.arange(1, 13)
    np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), progressive.mean(axis=0), rtol=1e-6)
    half = 1.96 * progressive.std(axis=0, ddof=1) / 2
    top = np.asarray(band.get_paths()[0].vertices)[:, 1].max()
    assert top == pytest.approx((progressive.mean(axis=0) + half).max(), rel=1e-6)
    expected = result.bits.mean(axis=0).sum() / 3 if against == "bits" else 12
    assert np.asarray(line.get_xdata())[-1] == pytest.approx(expected)
    thinned = omkl.simulate((X, y), "path", method=omkl.Gossip(eta=1.0), seeds=4, record_every=4)
    plot_loss(axes, thinned, label="thinned", against=against)
    expected = 4 * thinned.bits.mean(axis=0).sum() / 3 if against == "bits" else 12
    assert np.asarray(axes.lines[-1].get_xdata())[-1] == pytest.approx(expected)
    with pytest.raises(omkl.InputError, match="unknown axis"):
        plot_loss(axes, result, label="", against="bitz")


def test_partition_is_drawn_as_counts() -> None:
    _, (axes,) = figure()
    assert plot_partition(axes, [[0, 0, 2], [2], [0, 2, 2, 2]]) is axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[2, 0, 1], [1, 1, 3]]
    assert [bar.get_y() for bar in axes.containers[1]] == [2, 0, 1]
    assert axes.get_legend_handles_labels()[1] == ["0", "2"]


def test_partition_of_values_is_drawn_in_quarters() -> None:
    _, (axes,) = figure()
    plot_partition(axes, np.arange(100.0).reshape(2, 50))
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[25, 0], [25, 0], [0, 25], [0, 25]]
    assert axes.get_legend_handles_labels()[1] == ["to 25", "to 50", "to 74", "above"]
