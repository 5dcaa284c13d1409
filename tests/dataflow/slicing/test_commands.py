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
    assert (data["order"], data["k1"], data["k2"], data["k3"]) == ("IS", 32, 32, 87)
    assert data["bytes"] == {"L1": 28_160, "L2": 329_728, "L3": 3_323_904}
    assert set(data["traffic"]) == {"L1", "L2", "L3", "memory", "cycles"}
    assert data["traffic"] == data["orders"]["IS"]["traffic"]
    assert data["best"]["behind"] >= 0
    assert data["caches"]["sizes"] == {"L1": 32_768, "L2": 1_048_576, "L3": 4_194_304}


def test_the_papers_example_as_text():
    text = run(f"{PAPER} --filter-tile 8").stdout
    assert text.startswith("IS: k1 = 32 channels, k2 = 32, k3 = 87 tiles\n")


def test_the_register_tile_is_by_default_the_machines():
    data = json.loads(run(f"{PAPER} --json").stdout)
    assert data["problem"]["window"] == 16
    assert data["problem"]["filter_tile"] > 1


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
