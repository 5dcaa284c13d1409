"""Figures of P5's measurements: they show the numbers, and their labels do not overlap."""

import pytest

from mlhood.jaxlab import timing_figures
from mlhood.jaxlab.operators.cases import ROWS
from mlhood.jaxlab.tables import operators_table
from mlhood.measure.measurement import Measurement
from tests.plotting.texts import check_texts, strings


def filled(speed_ups):
    table = operators_table()
    for row, factor in speed_ups.items():
        noise = [1 + 0.01 * (i % 5) for i in range(21)]
        table[row, "JAX"] = Measurement((1e-3,) * 21, None, "run", True)
        table[row, "No-JAX"] = Measurement(tuple(1e-3 * factor * x for x in noise), None, "run", True)
    return table


SPEED_UPS = {"conv": 2.0, "relu": 3.2, "add": 0.24, "dense": 0.16, "softmax": 0.9}
FIGURES = {
    "ratios": lambda: timing_figures.ratios(filled(SPEED_UPS)),
    "ratios, all rows": lambda: timing_figures.ratios(filled(dict.fromkeys(ROWS, 1.5))),
    "ratios, one row": lambda: timing_figures.ratios(filled({"conv": 0.1})),
    "ratios, far apart": lambda: timing_figures.ratios(filled({"conv": 90.0, "add": 0.02})),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_ratios_are_shown_only_for_filled_rows():
    texts = strings(timing_figures.ratios(filled(SPEED_UPS)))
    assert {"2.04x", "3.26x", "0.245x", "0.163x", *SPEED_UPS} <= set(texts)
    assert "max pool" not in texts


def test_bars_end_at_the_ratio():
    figure = timing_figures.ratios(filled({"conv": 2.0, "add": 0.25}))
    ends = [sorted((bar.get_x(), bar.get_x() + bar.get_width())) for bar in figure.axes[0].patches]
    assert ends == [pytest.approx([1, 2.04]), pytest.approx([0.255, 1])]
