"""Intervals contain a true ratio while another program burns a core; the command that prints the machine's ceilings."""

import multiprocessing
from contextlib import contextmanager

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.measure import compare, limits
from mlhood.measure.machine.facts import CacheSizes

RUNS = 10


def burn():
    while True:
        sum(range(10_000))


@contextmanager
def busy_core():
    process = multiprocessing.get_context("spawn").Process(target=burn, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def repeated(call, count):
    def run():
        for _ in range(count):
            call()

    return run


A, PRODUCT = np.random.default_rng(0).standard_normal((2, 160, 160), np.float32)
SOURCE, TARGET = np.random.default_rng(0).standard_normal((2, 2**20), np.float32)
CALLS = {
    "BLAS": lambda: np.matmul(A, A, out=PRODUCT),
    "copies": lambda: np.copyto(TARGET, SOURCE),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CALLS)
def test_the_interval_contains_the_true_ratio_on_a_busy_machine(name):
    """Twice the same work takes twice as long: the one ratio that is known without a measurement."""
    alternatives = {"less": repeated(CALLS[name], 3), "more": repeated(CALLS[name], 6)}
    with busy_core():
        results = [
            compare(alternatives, baseline="less", threads=1, check=False).ratio("more", "less") for _ in range(RUNS)
        ]
    assert sum(ratio.low <= 2.0 <= ratio.high for ratio in results) >= 0.9 * RUNS, list(map(str, results))


def test_the_command_prints_the_ceilings(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    actual = limits.this_machine()
    small = type(actual)(**{**vars(actual), "caches": CacheSizes(l1d=2**15, l2=2**17)})
    monkeypatch.setattr(limits, "this_machine", lambda: small)
    result = CliRunner().invoke(app, ["bench", "machine", "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert "peak" in result.output
