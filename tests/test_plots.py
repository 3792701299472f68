import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

import omkl
from omkl.plots import figure, moving_average, plot_loss, plot_partition

mpl.use("Agg")


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
    half = 3.18244630528 * progressive.std(axis=0, ddof=1) / 2  # Student's t of three degrees of freedom
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
    assert plot_partition(axes, [[0, 0, 2], [2], [0, 2, 2, 2]], names=["sea", "hill", "wood"]) is axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["sea", "hill", "wood"]
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


def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 3, 2)), np.sign(rng.normal(size=(12, 3)))


def test_a_result_draws_itself() -> None:
    result = omkl.simulate(blobs(), "path", method=omkl.Gossip(eta=1.0), seeds=4)
    own = result.plot()
    late = moving_average(result.loss.mean(axis=0).astype(float), 1)  # a tenth of twelve rounds
    np.testing.assert_allclose(np.asarray(own.lines[0].get_ydata(), dtype=float), late, rtol=1e-6)
    assert own.get_ylabel() == "loss, moving average"
    assert own.get_title().startswith("paper, eta=1 on a table: path of 3 nodes")
    _, (given,) = figure()
    assert result.plot(given, label="mine", against="bits") is given
    assert (given.get_title(), given.get_xlabel(), given.lines[0].get_label()) == ("", "bits sent by a node", "mine")
    plt.close("all")


def test_a_comparison_is_a_mapping_a_table_and_a_figure() -> None:
    cases = {"gossip": (omkl.Gossip(eta=1.0), "path"), "alone <&>": (omkl.Local(eta=1.0), "path")}
    found = omkl.compare(blobs(), cases, seeds=4)
    assert list(found) == list(cases)
    each = [one.loss.mean(axis=1, dtype=np.float64) for one in found.values()]
    first, second = found.rows()
    assert (second["case"], second["seeds"], second["bytes"]) == ("alone <&>", 4, 0)
    assert second["loss"] == pytest.approx(each[1].mean())
    apart = each[1] - each[0]
    assert (second["difference"], first["difference"]) == (pytest.approx(apart.mean()), 0)
    assert second["difference_half"] == pytest.approx(3.18244630528 * apart.std(ddof=1) / 2)
    line = repr(found).splitlines()[3]
    assert line.startswith(f"  alone <&>  {each[1].mean():.4f} ± ")
    assert f" {apart.mean():+.4f} ± {second['difference_half']:.4f} " in line
    assert "<th>alone &lt;&amp;&gt;</th>" in found._repr_html_()
    axes = found.plot()
    (below,) = axes.figure.legends  # under the axes, so that it hides no curve
    assert [text.get_text() for text in below.get_texts()] == list(cases)
    axes.figure.canvas.draw()
    assert below.get_window_extent().y1 < axes.get_window_extent().y0
    _, given = plt.subplots()
    assert found.plot(given) is given
    assert given.get_legend() is not None
    plt.close("all")


def test_a_comparison_pairs_the_seeds_that_are_common() -> None:
    one, other = (omkl.simulate(blobs(), "path", method=omkl.Gossip(eta=1.0), seeds=2, seed=seed) for seed in (0, 1))
    _, row = omkl.Comparison({"one": one, "other": other}).rows()
    assert row["difference"] == pytest.approx(0, abs=1e-6)  # seed 1 is in both, and is the same run
    assert np.isnan(row["difference_half"])
    assert repr(omkl.Comparison()) == "Comparison()"
    alone = omkl.Comparison({"one": omkl.simulate(blobs(), "path", method=omkl.Gossip(eta=1.0))})
    assert repr(alone).endswith("one seed has no interval; pass seeds=10")
