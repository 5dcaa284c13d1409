"""The comparison of our quantisation with ONNX Runtime's on the zoo, and the table that the command prints."""

import json
import math

import pytest
from typer.testing import CliRunner

from mlhood.errors import CompilerError, ModelError
from tests.tools.compiler.__main__ import app
from tests.tools.compiler.quantization import Row, measure, summary


def test_small_networks_lose_no_more_than_with_onnxruntime():
    rows = list(measure(["mlp", "mobilenet_v3"]))
    assert [row.name for row in rows] == ["mlp", "mobilenet_v3"]
    assert all(row.is_good and 20 < row.ours < 100 and 20 < row.theirs < 100 for row in rows)
    assert summary(rows).startswith("2 of 2 within 1 dB")


@pytest.mark.parametrize(
    ("ours", "theirs", "is_good"),
    [
        (30, 30.9, True),
        (30, 31.1, False),
        (30, 10, True),
        (30, math.nan, True),
        (math.nan, 30, False),
        (140, math.inf, True),
        (90, math.inf, False),
    ],
)
def test_within_one_decibel_or_better(ours, theirs, is_good):
    row = Row("net", ours, theirs)
    assert row.is_good is is_good
    assert ("*" in str(row)) is not is_good


def test_what_torch_cannot_export_does_not_count():
    assert summary([Row("a", 30, 30), Row("b", note="not exported: no")]).startswith("1 of 1")
    assert summary([Row("a", 30, 30), Row("b", note="ours: refused")]).startswith("1 of 2")


def test_unknown_names():
    with pytest.raises(ModelError, match="unknown architecture"):
        list(measure(["none"]))
    with pytest.raises(CompilerError, match="unknown exporter"):
        list(measure(["mlp"], "none"))


def test_the_command(tmp_path):
    path = tmp_path / "rows.json"
    result = CliRunner().invoke(app, ["quantization", "mlp", "--json", str(path)])
    assert result.exit_code == 0
    assert "1 of 1 within" in result.output
    (row,) = json.loads(path.read_text())["rows"]
    assert row["name"] == "mlp"
    assert row["ours"] > 20
