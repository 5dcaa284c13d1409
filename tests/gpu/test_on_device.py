"""Measuring on a GPU: nothing where there is none."""

import subprocess

import pytest

from mlhood.errors import GPUError
from mlhood.gpu import cost, on_device
from mlhood.gpu.ladder import RUNGS


def test_a_machine_without_a_gpu_measures_nothing():
    result = on_device.measured(64)
    assert result == {} or set(result["rates"]) >= set(RUNGS)


def test_measured_rates_stand_beside_predicted_ones():
    rates = dict.fromkeys([*RUNGS, "cuBLAS"], 3000.0)
    table = on_device.beside_predictions({"gpu": "Tesla T4", "rates": rates}, 4096)
    assert list(table.index) == [*RUNGS, "cuBLAS"]
    assert dict(table.loc["cuBLAS"]) == {
        "measured, GFLOP/s": 3000.0,
        "predicted, GFLOP/s": pytest.approx(cost.GPUS["T4"].peak / 1e9, rel=1e-4),
        "limited by": "arithmetic",
    }
    assert list(on_device.beside_predictions({"gpu": "another", "rates": rates}, 64).columns) == ["measured, GFLOP/s"]


def test_a_program_that_fails(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no kernel image")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(GPUError, match="no kernel image"):
        on_device.measured(64)
