"""`mlhood slice`."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import SlicingError

PAPER = "slice --filters 256 --channels 32 --kernel 3 --output 75 --caches 32KiB,1MiB,4MiB --fill 0.9 --window 16"


def run(command):
    return CliRunner().invoke(app, command.split())


def test_the_papers_example_as_data():
    data = json.loads(run(f"{PAPER} --filter-tile 8 --json").stdout)
    assert data["analysis"]["slicing"] == {"order": "IS", "k1": 32, "k2": 32, "k3": 87}
    assert data["analysis"]["candidates"]["IS"][0] == data["analysis"]["slicing"]
    assert data["analysis"]["caches"]["sizes"] == [32_768, 1_048_576, 4_194_304]
    assert data["best"]["traffic"]["cycles"] <= data["analysis"]["candidates"]["IS"][1]["cycles"]


def test_the_papers_example_as_text():
    text = run(f"{PAPER} --filter-tile 8").stdout
    assert text.startswith("IS: k1 = 32 channels, k2 = 32, k3 = 87 tiles\n")
    assert "bytes: 28,160 of 29,491 in L1, 329,728 of 943,718 in L2, 3,323,904 of 3,774,873 in L3" in text


def test_the_register_tile_is_by_default_the_machines():
    data = json.loads(run(f"{PAPER} --json").stdout)
    assert data["analysis"]["problem"]["window"] == 16
    assert data["analysis"]["problem"]["filter_tile"] > 1


@pytest.mark.parametrize(
    "option",
    [
        "--kernel 3x3x3",
        "--output a",
        "--kernel 0",
        "--caches 32KiB",
        f"--kernel {'9' * 5000}",
        f"--caches {'9' * 400},1,1",
        f"--filters {10**24}",
        "--filters 1000000 --channels 1000000 --output 100000x100000",
        "--channels 1000000 --output 1000 --caches -,-,-",
        f"--filters 1 --channels {10**12} --kernel 1 --output 1",
    ],
)
def test_an_invalid_option_is_rejected(option):
    result = run(f"{PAPER} --filter-tile 8 {option}")
    assert isinstance(result.exception, SlicingError)
