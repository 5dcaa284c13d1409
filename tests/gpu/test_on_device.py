"""Measuring on a GPU: nothing where there is none."""

import subprocess

import pytest

from mlhood.errors import GPUError
from mlhood.gpu import on_device
from mlhood.gpu.ladder import RUNGS


def test_a_machine_without_a_gpu_measures_nothing():
    result = on_device.measured(64)
    assert result == {} or set(result["rates"]) >= set(RUNGS)


def test_a_program_that_fails(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "no kernel image")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(GPUError, match="no kernel image"):
        on_device.measured(64)
