"""What the benches write; how fast anything is, they say themselves."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import KernelError
from mlhood.kernels import bench
from mlhood.kernels.layers import Layer


def test_a_row_has_every_side_and_its_ratio():
    (case,) = bench.gemm_cases(1, 21, "interleaved", [16])
    row = case.row()
    assert json.loads(json.dumps(row)) == row
    assert set(row["seconds"]) == {"vectorised", "numpy"}
    ratio = row["ratios"]["numpy"]
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert row["gflops"]["numpy"] == pytest.approx(2 * 16**3 / row["seconds"]["numpy"] / 1e9)


def test_all_sides_of_a_convolution_agree_and_are_summed_up():
    cases = list(bench.conv_cases(1, 21, "hot", [Layer(4, 8, 8, 3), Layer(4, 8, 8, 3, groups=4)]))
    assert cases[0].peers == ["torch", "onnxruntime", "im2col_blas", "direct, packing"]
    summed = bench.summary(cases)
    rows = [case.row() for case in cases]
    for peer in cases[0].peers:
        ratios = [row["ratios"][peer]["value"] for row in rows]
        assert summed["ratios"][peer] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
        assert summed["lowest"][peer] == min(ratios)


def test_an_unknown_network_is_refused():
    result = CliRunner().invoke(app, ["bench", "conv", "--network", "lenet"])
    assert isinstance(result.exception, KernelError)
    assert "resnet50" in str(result.exception)
