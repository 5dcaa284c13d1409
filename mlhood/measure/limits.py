"""What this machine can do at most, measured: multiply-adds from registers, and bytes per second from each cache.

A ceiling is the best of many short rounds, for whatever disturbs a round can only lower it; the median is kept beside
it, and says how quiet the machine was.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mlhood.errors import MeasureError
from mlhood.measure import microbenchmarks
from mlhood.measure.machine import Machine, binary_size
from mlhood.measure.machine import machine as this_machine
from mlhood.measure.machine.facts import Caches
from mlhood.measure.roofline import Roofline
from mlhood.measure.units import rate

ROUNDS = 30
SECONDS = 1e-3
PORTABLE_LANES = 4
# Enough to keep the multipliers busy (latency x units: 8 on most processors, 16 on Apple's), few enough for registers
ACCUMULATORS = (8, 12, 24)
_FIRST_SIZE = 12 * 1024
_LARGEST = 512 * 2**20
_LINE = 64
_ARRAYS = 3


@dataclass(frozen=True)
class Ceiling:
    """A rate that this machine does not exceed.

    Args:
        rates: Per second, for each round.
        threads: How many worked at once.
    """

    rates: tuple[float, ...]
    threads: int

    @property
    def value(self) -> float:
        """The best round."""
        return max(self.rates)

    @property
    def median(self) -> float:
        """The round in the middle."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second through arrays of one size.

    Args:
        size: Bytes that one thread goes through, all three arrays together.
        level: `L1`, `L2`, `L3` or `memory`, where they lie; None where that is not clear.
        ceiling: Bytes per second, all threads together.
    """

    size: int
    level: str | None
    ceiling: Ceiling


@dataclass(frozen=True)
class Ceilings:
    """All ceilings for a number of threads.

    Args:
        peak: float32 operations per second.
        sweep: Bandwidth by size, from small to large.
        lanes: float32 in the vectors used.
    """

    peak: Ceiling
    sweep: tuple[Bandwidth, ...]
    lanes: int

    @property
    def bandwidths(self) -> dict[str, float]:
        """Bytes per second by level: the best of the sizes that lie there."""
        found: dict[str, float] = {}
        for one in self.sweep:
            if one.level is not None:
                found[one.level] = max(found.get(one.level, 0.0), one.ceiling.value)
        return found

    def roofline(self) -> Roofline:
        """Return the roofline of these ceilings."""
        return Roofline(self.peak.value, self.bandwidths)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, all rounds included."""
        return asdict(self)

    def __str__(self) -> str:
        quiet = self.peak.median / self.peak.value
        lines = [f"{self.peak.threads} thread(s), {self.lanes} float32 lanes, median round {quiet:.0%} of the best"]
        lines.append(f"{'peak':8} {rate(self.peak.value)}")
        return "\n".join(lines + [f"{name:8} {rate(value, 'B/s')}" for name, value in self.bandwidths.items()])


def ceilings(threads: int = 1, machine: Machine | None = None) -> Ceilings:
    """Measure all ceilings, which takes a second or two.

    Args:
        threads: How many work at once, each on data of its own.
        machine: Its facts; asked for if left out.

    Raises:
        MeasureError: The number of threads is not 1 or more, or LLVM cannot compile here.
    """
    machine = machine or this_machine()
    lanes = machine.vector.float32_lanes or PORTABLE_LANES
    return Ceilings(peak(threads, lanes), tuple(bandwidth(threads, machine)), lanes)


def peak(threads: int = 1, lanes: int | None = None, rounds: int = ROUNDS) -> Ceiling:
    """Measure float32 operations per second from registers; a multiply-add counts as two.

    Args:
        threads: How many work at once.
        lanes: float32 in a vector; the host's if left out.
        rounds: How often, for each of `ACCUMULATORS`.

    Raises:
        MeasureError: The number of threads is not 1 or more, or LLVM cannot compile here.
    """
    lanes = lanes or this_machine().vector.float32_lanes or PORTABLE_LANES
    found = [_peak(threads, lanes, count, rounds) for count in ACCUMULATORS]
    return max(found, key=lambda ceiling: ceiling.value)


def _peak(threads: int, lanes: int, accumulators: int, rounds: int) -> Ceiling:
    run = microbenchmarks.multiply_add(lanes, accumulators)

    def worker() -> Callable[[int], None]:
        place = np.linspace(0.4, 0.6, lanes * (accumulators + 1), dtype=np.float32)

        return lambda count, place=place: run(place.ctypes.data, count)

    return measure_rate(worker, 2.0 * lanes * accumulators, threads, rounds)


def bandwidth(threads: int = 1, machine: Machine | None = None, rounds: int = ROUNDS) -> list[Bandwidth]:
    """Measure bytes per second of a = b + s c over arrays of growing size.

    Bytes are counted as STREAM does: two arrays read, one written; that a cache may read before it writes is left out.

    Args:
        threads: How many work at once, each on arrays of its own.
        machine: Its facts; asked for if left out.
        rounds: How often for each size.

    Raises:
        MeasureError: The number of threads is not 1 or more, or LLVM cannot compile here.
    """
    machine = machine or this_machine()
    lanes = machine.vector.float32_lanes or PORTABLE_LANES
    run = microbenchmarks.triad(lanes)
    room = (machine.memory.limit or machine.memory.total or _LARGEST) // 8
    found = []
    for size in sizes(machine.caches, threads, room):
        count = max(size // (_ARRAYS * 4 * lanes * microbenchmarks.UNROLLED), 1) * microbenchmarks.UNROLLED
        whole = _ARRAYS * 4 * lanes * count

        def worker(count: int = count) -> Callable[[int], None]:
            a, b, c, kept = _arrays(count * lanes)
            return lambda repeats, kept=kept: run(a, b, c, count, repeats)

        ceiling = measure_rate(worker, float(whole), threads, rounds)
        found.append(Bandwidth(whole, level(whole, machine.caches, threads), ceiling))
    return found


def _arrays(length: int) -> tuple[int, int, int, np.ndarray]:
    """Return the addresses of three arrays, each at a cache line's begin, and what they lie in.

    They are set apart by some lines more than their length: at a multiple of 4 KiB, a store would seem to hit the
    next load (4K aliasing in Intel's optimization manual).
    """
    apart = -(-length * 4 // _LINE) * _LINE + 5 * _LINE
    kept = np.full((3 * apart + _LINE) // 4, 0.5, np.float32)
    first = -(-kept.ctypes.data // _LINE) * _LINE
    return first, first + apart, first + 2 * apart, kept


def sizes(caches: Caches, threads: int, room: int) -> list[int]:
    """Return bytes a thread: growing by the square root of two until all threads fill the last cache four times."""
    known = [size for size in (caches.l1d, caches.l2, caches.l3) if size]
    last = min(4 * max(known, default=16 * 2**20), _LARGEST, room) // threads
    steps = max(math.ceil(2 * math.log2(max(last / _FIRST_SIZE, 1))), 0)
    return [round(_FIRST_SIZE * 2 ** (step / 2)) for step in range(steps + 1)]


def level(size: int, caches: Caches, threads: int) -> str | None:
    """Return where arrays of this size a thread lie, None near the borders.

    A cache counts up to three quarters of its size, and only from one and a half times that of the one before. The
    first and second level are each core's own; the third is shared.
    """
    known = [(name, size) for name, size in _shares(caches, threads) if size]
    before = 0.0
    for name, capacity in known:
        if 1.5 * before <= size <= 0.75 * capacity:
            return name
        before = max(before, capacity)
    return "memory" if known and size >= 2 * before else None


def _shares(caches: Caches, threads: int) -> list[tuple[str, float | None]]:
    shared = None if caches.l3 is None else caches.l3 / threads
    return [("L1", caches.l1d), ("L2", caches.l2), ("L3", shared)]


def measure_rate(
    worker: Callable[[], Callable[[int], None]],
    unit: float,
    threads: int,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Ceiling:
    """Measure how much threads do per second, together.

    Args:
        worker: Called in each thread; returns a function that does a number of units of work.
        unit: What one unit is worth.
        threads: How many.
        rounds: How often; in each, all start together, and the last to end ends it.
        clock: Seconds.

    Raises:
        MeasureError: The number of threads or rounds is not 1 or more.
    """
    if min(threads, rounds) < 1:
        raise MeasureError("there is nothing to do", expected="1 or more", got=f"{threads} threads, {rounds} rounds")
    units = _calibrate(worker(), clock)
    gate = threading.Barrier(threads)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(threads)]

    def run(number: int) -> None:
        own = spans[number]
        try:
            if threads > 1:
                _pin(number)
            work = worker()
            work(units)
            for _ in range(rounds):
                gate.wait()
                start = clock()
                work(units)
                own.append((start, clock()))
        except BaseException:
            gate.abort()
            raise

    _together(run, range(threads))
    return Ceiling(tuple(threads * units * unit / _span(each) for each in zip(*spans, strict=True)), threads)


def _calibrate(work: Callable[[int], None], clock: Callable[[], float]) -> int:
    """Return how many units take about `SECONDS`, doubling from one."""
    units = 1
    while True:
        start = clock()
        work(units)
        if clock() - start >= SECONDS or units >= 2**40:
            return units
        units *= 2


def _span(each: Sequence[tuple[float, float]]) -> float:
    return max(end for _, end in each) - min(start for start, _ in each)


def _pin(number: int) -> None:
    """Keep the calling thread on a processor of its own, where the system lets it: two may be put on one otherwise."""
    if sys.platform == "linux":
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[number % len(allowed)]})


def all_threads() -> int:
    """Return how many threads it takes to keep all processors busy that this process may use."""
    cores = this_machine().cores
    return max(int(cores.usable or cores.logical or 1), 1)


def _together(run: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Run a function in a thread for each argument; the first error is raised here."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(len(arguments)) as pool:
        futures = [pool.submit(run, argument) for argument in arguments]
        errors = [error for future in futures if (error := future.exception()) is not None]
    real = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise (real or errors)[0]


def describe(sweep: Sequence[Bandwidth]) -> str:
    """Return one line a size, for people."""
    rows = [f"{binary_size(one.size):>10}  {rate(one.ceiling.value, 'B/s'):>10}  {one.level or ''}" for one in sweep]
    return "\n".join(rows)
