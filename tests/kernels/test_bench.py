"""The output of the benchmarks; no test depends on times."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import KernelError
from mlhood.kernels import bench
from mlhood.kernels.layers import Layer


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bench, "SIZES", (16,))


def test_a_row_has_every_alternative_and_its_ratio(small):
    (case,) = bench.gemm_cases(1, 21, "interleaved")
    row = case.row()
    assert json.loads(json.dumps(row)) == row
    assert set(row["seconds"]) == {"vectorised", "numpy"}
    assert row["share_of_peak"] is None
    ratio = row["ratios"]["numpy"]
    assert ratio["low"] <= ratio["value"] <= ratio["high"]
    assert row["gflops"]["numpy"] == pytest.approx(2 * 16**3 / row["seconds"]["numpy"] / 1e9)


def test_all_convolutions_agree_and_are_summarised():
    cases = list(bench.conv_cases(1, 21, "hot", [Layer(4, 8, 8, 3), Layer(4, 8, 8, 3, groups=4)]))
    others = ["torch", "torch, own layout", "onnxruntime", "im2col_blas", "im2col_gemm", "direct, packing"]
    assert cases[0].baselines == others
    summary = bench.summary(cases)
    rows = [case.row() for case in cases]
    for baseline in cases[0].baselines:
        ratios = [row["ratios"][baseline]["value"] for row in rows]
        assert summary["ratios"][baseline] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
        assert summary["lowest"][baseline] == min(ratios)


def test_our_share_of_the_peak(small):
    (case,) = bench.gemm_cases(1, 21, "hot", peak=2e12)
    row = case.row()
    assert row["share_of_peak"] == pytest.approx(row["gflops"]["vectorised"] / 2000)
    assert bench.summary([case, case])["share_of_peak"] == pytest.approx(row["share_of_peak"])
    assert f"{row['share_of_peak']:.1%} of peak" in bench.line(case)


def test_the_product_of_bytes_is_compared_with_float32(small):
    (case,) = bench.int8_cases(1, 21, "hot")
    assert case.baselines == ["float32", "onnxruntime"]
    assert bench.line(case).startswith("16: GOP/s int8 ")
    assert "peak" not in bench.line(case)


def test_blocked_layers_agree_with_plain_ones():
    layers = [Layer(3, 9, 20, 3, 2), Layer(20, 9, 33, 1)]
    for case in bench.conv_cases(1, 21, "hot", layers, "blocked"):
        assert case.result.measurements["direct"].agreed
        assert case.baselines == ["torch", "onnxruntime", "im2col_blas", "im2col_gemm", "direct, plain"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["conv", "--network", "lenet"], "resnet50"),
        (["conv", "--layout", "striped"], "blocked"),
        (["conv", "--layout", "blocked", "--network", "mobilenet_v2"], "--layout plain"),
        (["gemm", "--dtype", "float16"], "int8"),
    ],
)
def test_unknown_choices_are_refused(command, message):
    result = CliRunner().invoke(app, ["bench", *command])
    assert isinstance(result.exception, KernelError)
    assert message in str(result.exception)


def test_results_are_written_as_json(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "SIZES", (16, 20))
    path = tmp_path / "gemm.json"
    result = CliRunner().invoke(app, ["bench", "gemm", "--hot", "--json", str(path)])
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text())
    assert (data["bench"], data["dtype"], data["threads"]) == ("gemm", "float32", 1)
    assert [row["case"] for row in data["rows"]] == ["16", "20"]
    shares = [row["gflops"]["vectorised"] * 1e9 / data["peak_flops"] for row in data["rows"]]
    assert [row["share_of_peak"] for row in data["rows"]] == pytest.approx(shares)
    assert data["summary"]["all"]["share_of_peak"] == pytest.approx((shares[0] * shares[1]) ** 0.5)
