"""Whether confidence intervals of ratios hold on a busy machine: alternatives with a known ratio, compared repeatedly.

The alternatives of a pair do the same work a different number of times, so their true ratio is known without a
measurement: on any machine, 3 iterations take 1.5 times as long as 2. Meanwhile other processes burn cores.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from mlhood.measure import microbenchmarks
from mlhood.measure.comparison import compare
from mlhood.measure.limits import PORTABLE_LANES
from mlhood.measure.machine import machine
from mlhood.measure.measurement import Comparison
from mlhood.measure.ratio import Ratio

RUNS = 10
REQUIRED_COVERAGE = 0.9
_ACCUMULATORS = 12
Pair = dict[str, Callable[[], Any]]


@dataclass
class Coverage:
    """How often the confidence interval of a ratio contained the true ratio.

    Args:
        name: Name of the pair.
        truth: The true ratio.
        ratios: The measured ratios, one per run.
        results: The comparisons.
    """

    name: str
    truth: float
    ratios: list[Ratio] = field(default_factory=list)
    results: list[Comparison] = field(default_factory=list)

    @property
    def covered(self) -> int:
        """Number of runs whose interval contains the true ratio."""
        return sum(self.truth in ratio for ratio in self.ratios)

    @property
    def sufficient(self) -> bool:
        """Whether these are at least 9 of 10."""
        return self.covered >= REQUIRED_COVERAGE * len(self.ratios)

    def row(self) -> dict[str, Any]:
        """Return a row of the table."""
        ratios = sorted(self.ratios, key=lambda ratio: ratio.value)
        widths = sorted(ratio.high / ratio.low - 1 for ratio in self.ratios)
        return {
            "pair": self.name,
            "truth": self.truth,
            "median ratio": ratios[len(ratios) // 2].value,
            "lowest": ratios[0].value,
            "highest": ratios[-1].value,
            "interval's width": widths[len(widths) // 2],
            "interrupted": sum(result.interrupted for result in self.results),
            "held": self.covered,
            "runs": len(self.ratios),
        }


def coverage(
    burners: int = 1, runs: int = RUNS, rounds: int = 21, report: Callable[[str], None] = lambda line: None
) -> list[Coverage]:
    """Compare all pairs repeatedly while other processes burn cores.

    Args:
        burners: Number of such processes.
        runs: Number of comparisons of each pair.
        rounds: Rounds of each comparison.
        report: Called with a line of progress before each run.

    Raises:
        MeasureError: There are too few rounds.
    """
    coverages = [(Coverage(name, truth), pair) for name, (truth, pair) in pairs().items()]
    with burning(burners):
        for run in range(runs):
            report(f"run {run + 1} of {runs}")
            for entry, pair in coverages:
                result = compare(pair, baseline="less", rounds=rounds, threads=1, check=False, seed=run)
                entry.results.append(result)
                entry.ratios.append(result.ratio("more", "less"))
    return [entry for entry, _ in coverages]


def pairs() -> dict[str, tuple[float, Pair]]:
    """Return name -> (true ratio, alternatives): long and short work in registers, BLAS, memory."""
    lanes = machine().vector.float32_lanes or PORTABLE_LANES
    multiply_add = microbenchmarks.multiply_add(lanes, _ACCUMULATORS)
    buffer = np.linspace(0.4, 0.6, lanes * (_ACCUMULATORS + 1), dtype=np.float32)
    address = buffer.ctypes.data
    draw = np.random.default_rng(0)
    a, product = draw.standard_normal((2, 160, 160), np.float32)
    source, target = draw.standard_normal((2, 2**20), np.float32)

    def in_registers(count: int) -> Callable[[], None]:
        return lambda _keep_alive=buffer: multiply_add(address, count)

    return {
        "registers, long": (1.5, _pair(in_registers(250_000), 2, 3)),
        "registers, short": (1.5, _pair(in_registers(10_000), 2, 3)),
        "BLAS 160 x 160": (2.0, _pair(lambda: np.matmul(a, a, out=product), 3, 6)),
        "copies of 4 MiB": (2.0, _pair(lambda: np.copyto(target, source), 2, 4)),
    }


def _pair(call: Callable[[], object], less: int, more: int) -> Pair:
    """Return two loops over complete calls, so that the overhead of a call scales with the work."""
    return {"less": _repeat(call, less), "more": _repeat(call, more)}


def _repeat(call: Callable[[], object], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep this number of cores busy with other processes."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_burn, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
            worker.join()


def _burn() -> None:
    state = 1
    while True:
        state = state * 1_103_515_245 % 2_147_483_647


def table(coverages: list[Coverage]) -> str:
    """Return the rows as a text table."""
    return pd.DataFrame([entry.row() for entry in coverages]).to_string(index=False, float_format="{:.3f}".format)
