"""Measuring on a GPU: predictions beside the rates, and nothing where there is no GPU."""

import subprocess
import sys

import pytest

from mlhood.gpu import cost, on_device
from mlhood.gpu.ladder import RUNGS


def test_a_machine_without_a_gpu_measures_nothing():
    program = [sys.executable, "-m", "mlhood.gpu.on_device", "64"]
    printed = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert printed == "no GPU that Numba can use here\n" or "registers" in printed


def test_measured_rates_stand_beside_predicted_ones():
    rates = dict.fromkeys([*RUNGS, "cuBLAS"], 3000.0)
    table = on_device.beside_predictions("Tesla T4", rates, 4096)
    assert list(table.index) == [*RUNGS, "cuBLAS"]
    assert dict(table.loc["cuBLAS"]) == {
        "measured, GFLOP/s": 3000.0,
        "predicted, GFLOP/s": pytest.approx(cost.GPUS["T4"].peak / 1e9, rel=1e-4),
        "limited by": "arithmetic",
    }
    assert list(on_device.beside_predictions("another", rates, 64).columns) == ["measured, GFLOP/s"]
