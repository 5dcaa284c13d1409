"""Cycles in closed form against recorded reports of SCALE-Sim, and properties that hold for any product."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.dataflow.systolic import DATAFLOWS, Array, Product, count, resnet_layers
from mlhood.errors import DataflowError

RECORDED = json.loads((Path(__file__).with_name("golden") / "scalesim.json").read_text(encoding="utf-8"))
SIZES = st.integers(1, 70)


@pytest.mark.parametrize("case", RECORDED["cases"])
def test_cycles_equal_those_that_scale_sim_reports(case):
    rows, columns, dataflow, m, n, k, last_cycle = case
    assert count(Product("recorded", m, n, k), Array(rows, columns, dataflow)).cycles == last_cycle + 1


def test_the_best_dataflow_changes_from_the_first_stage_of_resnet_to_the_last():
    cycles = {
        layer.name: {dataflow: count(layer, Array(16, 16, dataflow)).cycles for dataflow in ("ws", "is")}
        for layer in resnet_layers()
    }
    assert [layer.m for layer in resnet_layers()] == [56 * 56, 28 * 28, 14 * 14, 7 * 7]
    assert cycles["C1"]["ws"] < cycles["C1"]["is"]
    assert cycles["C4"]["ws"] > cycles["C4"]["is"]


@given(m=SIZES, n=SIZES, k=SIZES, size=SIZES)
def test_input_stationary_is_weight_stationary_of_the_transposed_product(m, n, k, size):
    ws = count(Product("product", m, n, k), Array(size, 5, "ws"))
    assert ws == count(Product("product", n, m, k), Array(size, 5, "is"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Product("product", 5, -1, 3),
        lambda: Product("product", 2.5, 1, 3),
        lambda: Array(0, 4, "ws"),
        lambda: Array(4, 4, "rs"),
    ],
)
def test_invalid_products_and_arrays_are_rejected(make):
    with pytest.raises(DataflowError):
        make()


def test_the_dataflows_are_the_three_stationary_operands():
    assert list(DATAFLOWS) == ["ws", "is", "os"]
