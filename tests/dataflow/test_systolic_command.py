"""The command: tables, JSON, and error messages."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import DataflowError

CONFIG = """[general]
run_name = small

[architecture_presets]
ArrayHeight: 4
ArrayWidth: 5
IfmapSramSzkB: 1
FilterSramSzkB: 2
OfmapSramSzkB: 3
Dataflow: ws

[run_presets]
InterfaceBandwidth: CALC
"""
TOPOLOGY = "Layer, M, N, K,\nfirst, 9, 8, 7,\nsecond, 6, 5, 40,\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "c.cfg").write_text(CONFIG)
    (tmp_path / "t.csv").write_text(TOPOLOGY)
    return ["systolic", "--config", str(tmp_path / "c.cfg"), "--topology", str(tmp_path / "t.csv")]


def run(arguments):
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_a_table_has_a_line_per_layer_and_the_total(files):
    result = run(files)
    assert result.exit_code == 0
    assert "small: 4 x 5 elements, ws" in result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    # ceil(7/4) ceil(8/5) folds of 2*4 + 5 + 9 - 2 cycles, and ceil(40/4) of 2*4 + 5 + 6 - 2
    assert [lines[name].split()[-7] for name in ("first", "second", "all")] == ["80", "170", "250"]
    assert "Eyeriss" in result.stdout


def test_json_contains_the_counts(files):
    result = run([*files, "--json", "--dataflow", "os"])
    data = json.loads(result.stdout)
    assert data["array"]["dataflow"] == "os"
    assert data["layers"][1]["layer"]["name"] == "second"
    assert data["layers"][1]["memories"]["filter"] == 5 * 40
    assert data["total"]["cycles"] == sum(layer["counts"]["cycles"] for layer in data["layers"])
    assert data["total"]["macs"] == 9 * 8 * 7 + 6 * 5 * 40


def test_invalid_input_is_rejected(files):
    with pytest.raises(DataflowError, match="unknown dataflow"):
        run([*files, "--dataflow", "rs"])
    with pytest.raises(DataflowError, match="not a configuration"):
        run([*files[:1], "--config", files[4], "--topology", files[2]])


def test_help_imports_neither_numba_nor_numpy():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom mlhood.cli import app\n"
        "result = CliRunner().invoke(app, ['systolic', '--help'])\n"
        "print(result.exit_code, [name for name in ('numpy', 'numba', 'matplotlib') if name in sys.modules])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0 []"
