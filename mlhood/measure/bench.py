"""Do ratios stay within their intervals on a busy machine? Alternatives whose true ratio is known, compared over again.

Each pair does the same work a different number of times, so that the ratio is known without measuring it: whatever the
machine, 3 loops take 1.5 times as long as 2. Meanwhile other processes burn cores.
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
from mlhood.measure.ratio import Ratio
from mlhood.measure.result import Comparison

RUNS = 10
NEEDED = 0.9
_ACCUMULATORS = 12
Pair = dict[str, Callable[[], Any]]


@dataclass
class Coverage:
    """How often the interval of a ratio held what is true.

    Args:
        name: Of the pair.
        truth: The true ratio.
        found: One for each run.
        results: The comparisons themselves.
    """

    name: str
    truth: float
    found: list[Ratio] = field(default_factory=list)
    results: list[Comparison] = field(default_factory=list)

    @property
    def held(self) -> int:
        """In how many runs the truth lay within the interval."""
        return sum(self.truth in ratio for ratio in self.found)

    @property
    def enough(self) -> bool:
        """Whether that was in at least 9 of 10."""
        return self.held >= NEEDED * len(self.found)

    def row(self) -> dict[str, Any]:
        """Return plain data."""
        ratios = sorted(self.found, key=lambda ratio: ratio.value)
        widths = sorted(ratio.high / ratio.low - 1 for ratio in self.found)
        return {
            "pair": self.name,
            "truth": self.truth,
            "median ratio": ratios[len(ratios) // 2].value,
            "lowest": ratios[0].value,
            "highest": ratios[-1].value,
            "interval's width": widths[len(widths) // 2],
            "interrupted": sum(result.interrupted for result in self.results),
            "held": self.held,
            "runs": len(self.found),
        }


def coverage(
    burners: int = 1, runs: int = RUNS, rounds: int = 21, report: Callable[[str], None] = lambda line: None
) -> list[Coverage]:
    """Compare all pairs over again while other processes burn cores.

    Args:
        burners: How many such processes.
        runs: How often.
        rounds: Of each comparison.
        report: Called with a line about each run.

    Raises:
        MeasureError: There are too few rounds.
    """
    known = [(Coverage(name, truth), pair) for name, (truth, pair) in pairs().items()]
    with burning(burners):
        for number in range(runs):
            report(f"run {number + 1} of {runs}")
            for one, pair in known:
                result = compare(pair, baseline="less", rounds=rounds, threads=1, check=False, seed=number)
                one.results.append(result)
                one.found.append(result.ratio("more", "less"))
    return [one for one, _ in known]


def pairs() -> dict[str, tuple[float, Pair]]:
    """Return name -> (true ratio, calls): registers for long and for short, BLAS, memory."""
    lanes = machine().vector.float32_lanes or PORTABLE_LANES
    multiply_add = microbenchmarks.multiply_add(lanes, _ACCUMULATORS)
    place = np.linspace(0.4, 0.6, lanes * (_ACCUMULATORS + 1), dtype=np.float32)
    start = place.ctypes.data
    draw = np.random.default_rng(0)
    a, product = draw.standard_normal((2, 160, 160), np.float32)
    large, other = draw.standard_normal((2, 2**20), np.float32)

    def long(kept: np.ndarray = place) -> None:
        multiply_add(start, 250_000)

    def short(kept: np.ndarray = place) -> None:
        multiply_add(start, 10_000)

    return {
        "registers, long": (1.5, _pair(long, 2, 3)),
        "registers, short": (1.5, _pair(short, 2, 3)),
        "BLAS 160 x 160": (2.0, _pair(lambda: np.matmul(a, a, out=product), 3, 6)),
        "copies of 4 MiB": (2.0, _pair(lambda: np.copyto(other, large), 2, 4)),
    }


def _pair(call: Callable[[], object], less: int, more: int) -> Pair:
    """Return two loops over whole calls, so that what a call costs besides its work is in the ratio, too."""
    return {"less": _times(call, less), "more": _times(call, more)}


def _times(call: Callable[[], object], count: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(count):
            call()

    return run


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep as many cores busy with other processes."""
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
    number = 1
    while True:
        number = number * 1_103_515_245 % 2_147_483_647


def table(found: list[Coverage]) -> str:
    """Return the rows as people read them."""
    return pd.DataFrame([one.row() for one in found]).to_string(index=False, float_format="{:.3f}".format)
