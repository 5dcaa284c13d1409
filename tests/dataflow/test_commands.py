"""`mlhood slice` and `mlhood systolic`."""

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import DataflowError, SlicingError

PAPER = "slice --filters 256 --channels 32 --kernel 3 --output 75 --caches 32KiB,1MiB,4MiB"
CONFIG = "[architecture_presets]\nArrayHeight: 4\nArrayWidth: 5\nIfmapSramSzkB: 1\nDataflow: ws\n"
# a product, and the convolution of 9 windows, 8 filters and 7 elements that is the same one
TOPOLOGY = "Layer, M, N, K,\nfirst, 9, 8, 7,\nsecond, 6, 5, 40,\nthird, 3, 9, 1, 1, 7, 8, 1, 3,\n"


def run(command):
    return CliRunner().invoke(app, command.split())


def test_the_papers_example():
    result = run(f"{PAPER} --register-tile 16x8")
    assert result.stdout.startswith("IS: k1 = 32 channels, k2 = 32, k3 = 87 tiles")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["IS", "WS"]


def test_the_register_tile_is_by_default_the_machines():
    assert run(PAPER).exit_code == 0


@pytest.mark.parametrize(
    "option", ["--kernel 3x3x3", "--output a", "--kernel 0", "--caches 32KiB", "--output 9999999999"]
)
def test_an_invalid_option_is_rejected(option):
    assert isinstance(run(f"{PAPER} {option}").exception, SlicingError)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "c.cfg").write_text(CONFIG)
    (tmp_path / "t.csv").write_text(TOPOLOGY)
    return f"systolic --config {tmp_path}/c.cfg --topology {tmp_path}/t.csv"


def test_a_table_has_a_line_per_layer_and_the_total(files):
    said = run(files).stdout
    cells = {line.split()[0]: line.split() for line in said.splitlines()}
    # ceil(7/4) ceil(8/5) folds of 2*4 + 5 + 9 - 2 cycles, and ceil(40/4) of 2*4 + 5 + 6 - 2
    assert cells["first"][1:6] == cells["third"][1:6] == ["9", "8", "7", "4", "80"]
    assert cells["second"][5] == "170"
    assert "cycles in all: 330" in said


def test_invalid_files_are_refused(files, tmp_path):
    assert isinstance(run(f"{files} --dataflow rs").exception, DataflowError)
    swapped = f"systolic --config {tmp_path}/t.csv --topology {tmp_path}/c.cfg"
    assert "not a configuration" in str(run(swapped).exception)
    (tmp_path / "t.csv").write_text("Layer, M, N, K\nfirst, 9, 8\n")
    assert "line 2" in str(run(files).exception)
