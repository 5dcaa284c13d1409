"""Closed forms against published numbers, and properties that hold for any layer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.dataflow.systolic import Array, ArrayLayer, count, folds, gemm_layer, map_layer, resnet_layers
from mlhood.dataflow.systolic.array import DATAFLOWS
from mlhood.errors import DataflowError

SIZES = st.integers(1, 70)


@pytest.mark.parametrize(("dataflow", "last_cycle"), [("ws", 11_199), ("is", 14_207), ("os", 10_175)])
def test_a_product_takes_the_cycles_that_scale_sim_reports(dataflow, last_cycle):
    assert count(gemm_layer("product", 256, 128, 256), Array(32, 32, dataflow)).cycles == last_cycle + 1


def test_a_convolution_reads_and_writes_what_scale_sim_reports():
    counts = count(ArrayLayer("Conv1", 224, 224, 11, 11, 3, 96, 4, 4), Array(32, 32, "ws"))
    assert (counts.ifmap_reads, counts.filter_reads, counts.ofmap_writes) == (3_294_225, 34_848, 3_484_800)
    assert counts.macs / (1024 * (counts.cycles - 1)) == pytest.approx(0.9168309650614964, rel=1e-15)


def test_a_window_that_extends_beyond_the_edge_counts():
    assert (ArrayLayer("inside", 9, 9, 3, 3, 1, 1, 2, 2).m, ArrayLayer("beyond", 10, 9, 3, 3, 1, 1, 2, 2).m) == (16, 20)


def test_the_best_dataflow_changes_from_the_first_stage_of_resnet_to_the_last():
    cycles = {
        layer.name: {dataflow: count(layer, Array(16, 16, dataflow)).cycles for dataflow in ("ws", "is")}
        for layer in resnet_layers()
    }
    assert [layer.m for layer in resnet_layers()] == [56 * 56, 28 * 28, 14 * 14, 7 * 7]
    assert cycles["C1"]["ws"] < cycles["C1"]["is"]
    assert cycles["C4"]["ws"] > cycles["C4"]["is"]


@given(m=SIZES, n=SIZES, k=SIZES, rows=SIZES, columns=SIZES, dataflow=st.sampled_from(list(DATAFLOWS)))
def test_folds_cover_the_product_once(m, n, k, rows, columns, dataflow):
    layer, array = gemm_layer("product", m, n, k), Array(rows, columns, dataflow)
    mapping = map_layer(layer, dataflow)
    area = sum(fold.rows * fold.columns * fold.count for fold in folds(mapping, rows, columns))
    assert area == mapping.along_rows * mapping.along_columns
    assert mapping.along_rows * mapping.along_columns * mapping.steps == layer.macs
    counts = count(layer, array)
    assert 0 < counts.utilisation <= 1
    assert counts.ifmap_reads >= m * k
    assert counts.filter_reads >= k * n
    assert counts.ofmap_writes >= m * n


@given(m=SIZES, n=SIZES, k=SIZES, size=SIZES)
def test_input_stationary_is_weight_stationary_of_the_transposed_product(m, n, k, size):
    ws = count(gemm_layer("product", m, n, k), Array(size, 5, "ws"))
    transposed = count(gemm_layer("product", n, m, k), Array(size, 5, "is"))
    assert (ws.cycles, ws.ifmap_reads, ws.hops) == (transposed.cycles, transposed.filter_reads, transposed.hops)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArrayLayer("L", 5, 5, 6, 3, 1, 1), "larger than the image"),
        (lambda: ArrayLayer("L", 5, 5, 3, 3, 0, 1), "channels"),
        (lambda: gemm_layer("L", 5, -1, 3), "filters"),
        (lambda: gemm_layer("L", 2.5, 1, 3), "height"),
        (lambda: Array(0, 4, "ws"), "rows"),
        (lambda: Array(4, 4, "ws", ofmap_kib=0), "ofmap_kib"),
        (lambda: Array(4, 4, "rs"), "unknown dataflow"),
    ],
)
def test_invalid_layers_and_arrays_are_rejected(make, message):
    with pytest.raises(DataflowError, match=message):
        make()
