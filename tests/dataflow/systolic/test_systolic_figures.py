"""Pictures are drawn without warnings, and say what they should."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from mlhood.dataflow.systolic import Array, count, energy, follow, resnet_layers, simulate
from mlhood.dataflow.systolic.array import DATAFLOWS
from mlhood.dataflow.systolic.systolic_figures import busy, compare, energies, filling, sides
from mlhood.errors import DataflowError


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def run(dataflow, rows=3, columns=4):
    source = np.random.default_rng(0)
    return simulate(source.integers(-9, 9, (5, 7)), source.integers(-9, 9, (7, 6)), Array(rows, columns, dataflow))


def texts(figure):
    figure.canvas.draw()
    found = [text.get_text() for axes in figure.axes for text in [*axes.texts, axes.title]]
    # a title may stand on the left
    found += [axes.get_title(loc="left") for axes in figure.axes]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return [*found, *legends, *(label.get_text() for axes in figure.axes for label in axes.get_xticklabels())]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_elements_say_what_passes(dataflow):
    found = run(dataflow)
    cycle = 5
    drawn = texts(filling(found, [cycle]))
    assert f"cycle {cycle}: {found.busy[cycle].sum()} busy" in drawn
    passing = {"ws": "m", "is": "n", "os": "k"}[dataflow]
    steps = [f"{passing}{step}" for step in found.step[cycle][found.busy[cycle]]]
    held = [f"k{row}" for row in found.held[cycle].ravel() if row >= 0]
    named = [text for text in drawn if len(text) == 2 and text[0] in "mnk"]
    assert sorted(named) == sorted(steps + held)


def test_six_cycles_of_the_first_fold_are_chosen():
    found = run("ws", 2, 9)
    titles = [text for text in texts(filling(found)) if text.startswith("cycle")]
    assert len(titles) == 6
    assert titles[0].startswith("cycle 0:")
    assert titles[-1].startswith(f"cycle {(found.fold == 0).sum() - 1}:")


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(DataflowError, match="too large"):
        filling(run("ws", 17, 2))
    with pytest.raises(DataflowError, match="no such cycle"):
        filling(run("ws"), [10_000])


def test_busy_elements_are_told_with_their_share():
    found = run("os")
    drawn = texts(busy({"mine": found, "other": run("ws")}))
    share = f"{found.macs / (found.cycles * 12):.0%}"
    assert any(text.startswith("mine: 4 folds") and share in text for text in drawn)


@pytest.mark.parametrize("layers", [1, 4])
def test_orders_are_compared_and_the_least_is_bold(layers):
    cycles = {
        layer.name: {dataflow: count(layer, Array(16, 16, dataflow)).cycles for dataflow in DATAFLOWS}
        for layer in resnet_layers()[:layers]
    }
    figure = compare(cycles)
    assert {"458 k", "776 k", "475 k", "ws (weight stationary)", "C1"} <= set(texts(figure))
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"]
    assert bold == (["458 k"] if layers == 1 else ["458 k", "463 k", "485 k", "594 k"])


@pytest.mark.parametrize("sizes", [(16,), (4, 8, 16, 32)])
def test_sides_are_ratios_of_cycles_about_one(sizes):
    figure = sides(resnet_layers(), sizes)
    lines = {line.get_label()[:2]: line.get_ydata() for line in figure.axes[0].lines}
    assert lines["C1"][-1] > 1 > lines["C4"][-1]
    expected = [count(resnet_layers()[2], Array(size, size, "is")).cycles for size in sizes]
    np.testing.assert_allclose(
        lines["C3"], expected / np.array([count(resnet_layers()[2], Array(size, size, "ws")).cycles for size in sizes])
    )
    assert {"WS is faster", "IS is faster", f"{sizes[-1]} x {sizes[-1]}"} <= set(texts(figure))


def test_energies_are_stacked_to_their_sum():
    layer, array = resnet_layers()[3], Array(64, 64, "os")
    bars = {"C4": energy(count(layer, array), follow(layer, array))}
    figure = energies(bars)
    assert {"MAC", "register", "hops", "SRAM", "DRAM"} <= set(texts(figure))
    ends = [patch.get_x() + patch.get_width() for patch in figure.axes[0].patches]
    assert max(ends) == pytest.approx(sum(bars["C4"].values()))
