"""The figures show the simulation and the counts."""

import numpy as np
import pytest

from mlhood.dataflow.systolic import DATAFLOWS, Array, count, resnet_layers, simulate
from mlhood.dataflow.systolic.systolic_figures import compare, filling, sides


def run(dataflow, rows=3, columns=4):
    source = np.random.default_rng(0)
    return simulate(source.integers(-9, 9, (5, 7)), source.integers(-9, 9, (7, 6)), Array(rows, columns, dataflow))


def texts(figure):
    figure.canvas.draw()
    labels = [text.get_text() for axes in figure.axes for text in [*axes.texts, axes.title]]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    legends = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return [*labels, *titles, *legends, *(label.get_text() for axes in figure.axes for label in axes.get_xticklabels())]


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_six_cycles_of_the_first_fold_show_their_operands(dataflow):
    simulated = run(dataflow)
    drawn = texts(filling(simulated))
    last = (simulated.fold == 0).sum() - 1
    cycles = [round(last * part / 5) for part in range(6)]
    titles = [text for text in drawn if text.startswith("cycle")]
    assert titles == [f"cycle {cycle}: {simulated.busy[cycle].sum()} busy" for cycle in cycles]
    streamed = {"ws": "m", "is": "n", "os": "k"}[dataflow]
    steps = [f"{streamed}{step}" for cycle in cycles for step in simulated.step[cycle][simulated.busy[cycle]]]
    resident = [f"k{row}" for cycle in cycles for row in simulated.resident[cycle].ravel() if row >= 0]
    indices = [text for text in drawn if len(text) == 2 and text[0] in "mnk"]
    assert sorted(indices) == sorted(steps + resident)


@pytest.mark.parametrize("layers", [1, 4])
def test_compare_shows_each_dataflow_and_the_smallest_in_bold(layers):
    cycles = {
        layer.name: {dataflow: count(layer, Array(16, 16, dataflow)).cycles for dataflow in DATAFLOWS}
        for layer in resnet_layers()[:layers]
    }
    figure = compare(cycles)
    assert {"458 k", "776 k", "475 k", "ws (weight stationary)", "C1"} <= set(texts(figure))
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_weight() == "bold"]
    assert bold == (["458 k"] if layers == 1 else ["458 k", "463 k", "485 k", "594 k"])


@pytest.mark.parametrize("sizes", [(16,), (4, 8, 16, 32)])
def test_sides_shows_ratios_of_cycles(sizes):
    figure = sides(resnet_layers(), sizes)
    lines = {line.get_label()[:2]: line.get_ydata() for line in figure.axes[0].lines}
    assert lines["C1"][-1] > 1 > lines["C4"][-1]
    expected = [count(resnet_layers()[2], Array(size, size, "is")).cycles for size in sizes]
    np.testing.assert_allclose(
        lines["C3"], expected / np.array([count(resnet_layers()[2], Array(size, size, "ws")).cycles for size in sizes])
    )
    assert {"WS is faster", "IS is faster", f"{sizes[-1]} x {sizes[-1]}"} <= set(texts(figure))
