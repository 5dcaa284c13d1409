"""The figures of P3: drawn at any legible size, with the right numbers, and without overlapping text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.kernels import benchmark_figures, convolution_figures, gemm_figures
from mlhood.kernels.benchmark_figures import spread_apart
from mlhood.measure.ratio import Ratio
from tests.plotting.texts import check_texts, strings, texts_of

PEAK = 260e9
LADDER = {
    "naive": {64: 3e9, 128: 2e9},
    "reordered": {64: 20e9, 128: 24e9, 256: 4e9},
    "blas": {64: 90e9, 128: 160e9, 256: 239e9},
    "vectorised": {64: 120e9, 128: 200e9, 256: 240e9},
}
BASELINES = {
    "C1": {"im2col + BLAS": (90e9, 85e9, 97e9), "torch": (160e9, 150e9, 165e9), "ours": (235e9, 230e9, 255e9)},
    "C2": {"torch": (100e9, 90e9, 120e9), "ours": (208e9, 200e9, 209e9)},
}
MODELS = {"definition": (2.4, 0.008, 2.5), "BLAS": (0.038, 0.008, 0.05), "direct": (0.017, 0.008, 0.03)}
LAYERS = [("conv", 118e6, 60.0, False), ("3x3 @56", 115.6e6, 131.0, True), ("3x3 @28", 115.6e6, 166.0, True)]
RATIOS = {
    "C1": {"torch": Ratio(1.3, 1.2, 1.4), "ONNX Runtime": Ratio(0.97, 0.9, 1.01)},
    "C2": {"torch": Ratio(2.6, 2.5, 2.7), "ONNX Runtime": Ratio(0.97, 0.9, 1.01)},
}
FIGURES = {
    "window": convolution_figures.window,
    "im2col": convolution_figures.im2col_layout,
    "loop_orders": gemm_figures.loop_orders,
    "blocking": gemm_figures.blocking,
    "packing": gemm_figures.packing,
    "register_tile": gemm_figures.register_tile,
    "ladder": lambda: benchmark_figures.ladder(LADDER, PEAK),
    "baselines": lambda: benchmark_figures.baselines(BASELINES, PEAK),
    "ratios": lambda: benchmark_figures.ratios(RATIOS),
    "amdahl": lambda: benchmark_figures.amdahl(MODELS),
    "inventory": lambda: benchmark_figures.inventory(LAYERS),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_the_sum_of_a_window_is_the_output_pixel():
    shown = strings(convolution_figures.window())
    (line,) = [text.strip() for text in shown if "·" in text and "sum" not in text]
    terms, total = line.removeprefix("= ").split("  =  ")
    products = [[int(number.strip("()")) for number in term.split("·")] for term in terms.split(" + ")]
    assert len(products) == 9
    assert sum(a * b for a, b in products) == int(total)
    assert total in shown


def test_columns_are_the_windows_row_by_row():
    figure = convolution_figures.im2col_layout()
    numbers = [text for text in texts_of(figure) if text.get_text().isdigit()]
    right = max(text.get_window_extent().x1 for text in numbers)
    column = [text for text in numbers if text.get_window_extent().x1 > right - 12]
    shown = [int(text.get_text()) for text in sorted(column, key=lambda text: -text.get_window_extent().y0)]
    # the last window of 1 to 16, then that of 17 to 32, both 4 x 4
    assert shown == [6, 7, 8, 10, 11, 12, 14, 15, 16, 22, 23, 24, 26, 27, 28, 30, 31, 32]
    assert {"[F, 18]", "[18, 4]", "window (0, 1)"} <= set(strings(figure))


def test_a_ladder_names_each_rung_at_its_end():
    shown = strings(benchmark_figures.ladder(LADDER, PEAK))
    assert {"naive  0.8%", "reordered  1.5%", "blas  91.9%", "vectorised  92.3%", "peak: 260 GFLOP/s"} <= set(shown)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_spread_labels_keep_order_and_distance(values):
    moved = spread_apart(values, 0.1, 0.0, 1.0)
    order = np.argsort(values, kind="stable")
    assert all(b - a >= 0.1 - 1e-9 for a, b in pairwise(np.array(moved)[order]))
    assert min(moved) >= -1e-9
    assert max(moved) <= 1 + 1e-9


def test_baselines_are_labelled_with_rates_and_shares():
    shown = strings(benchmark_figures.baselines(BASELINES, PEAK))
    assert {"235  (90%)", "208  (80%)", "peak: 260 GFLOP/s", "im2col + BLAS"} <= set(shown)


def test_models_are_labelled_with_predicted_and_measured_speedups():
    shown = strings(benchmark_figures.amdahl(MODELS))
    assert "46.0 ms, 52.3x\nmeasured 50.0 ms, 50.0x" in shown
    assert "25.0 ms, 96.3x\nmeasured 30.0 ms, 83.3x" in shown
    assert sum("cut" in text for text in shown) == 1


def test_bars_of_similar_length_are_not_broken():
    shown = strings(benchmark_figures.amdahl({"a": (0.02, 0.01, 0.03), "b": (0.01, 0.01, 0.02)}))
    assert not any("cut" in text for text in shown)


def test_selected_layers_are_numbered_in_network_order():
    labels = [
        (text.get_text(), text.xy[1])
        for text in texts_of(benchmark_figures.inventory(LAYERS))
        if text.get_text()[0] == "C"
    ]
    assert sorted(set(labels)) == [("C1", 1), ("C2", 2)]


def test_ratios_are_labelled_with_geometric_means():
    figure = benchmark_figures.ratios(RATIOS)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["torch (geometric mean 1.84)", "ONNX Runtime (geometric mean 0.97)"]
