"""This machine's ceilings, measured: multiply-adds from registers, and bytes per second from each cache.

A ceiling is the best of many short rounds, as disturbances can only lower a rate; the median is kept too, and shows how
idle the machine was.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from mlhood.errors import MeasureError
from mlhood.measure.machine import Machine
from mlhood.measure.machine import machine as this_machine
from mlhood.measure.machine.facts import CacheSizes
from mlhood.measure.microbenchmarks import UNROLLED, Native, multiply_add_source, read_source, triad_source
from mlhood.measure.roofline import Roofline
from mlhood.measure.units import rate

ROUNDS = 30
SECONDS = 1e-3
PORTABLE_LANES = 4
# enough to saturate the multipliers (latency x units: 8 on most processors, 16 on Apple's), few enough for registers
ACCUMULATORS = (8, 12, 24)
_FIRST_SIZE = 12 * 1024
_MAX_SIZE = 512 * 2**20
_LINE = 64
_ARRAYS = 3


@dataclass(frozen=True)
class Ceiling:
    """A rate that this machine does not exceed.

    Args:
        rates: Per second, for each round.
        threads: Number of threads.
    """

    rates: tuple[float, ...]
    threads: int

    @property
    def value(self) -> float:
        """The rate of the best round."""
        return max(self.rates)

    @property
    def median(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second for arrays of one size.

    Args:
        size: Working set of a thread in bytes, all three arrays together.
        level: `L1`, `L2`, `L3` or `memory`, the level that holds it; None near a border.
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
        sweep: Bandwidth by size, ascending.
        lanes: float32 per vector.
    """

    peak: Ceiling
    sweep: tuple[Bandwidth, ...]
    lanes: int

    @property
    def bandwidths(self) -> dict[str, float]:
        """Bytes per second by level: the best of the sizes in it."""
        best: dict[str, float] = {}
        for entry in self.sweep:
            if entry.level is not None:
                best[entry.level] = max(best.get(entry.level, 0.0), entry.ceiling.value)
        return best

    def roofline(self) -> Roofline:
        """Return the roofline of these ceilings."""
        return Roofline(self.peak.value, self.bandwidths)

    def __str__(self) -> str:
        idle = self.peak.median / self.peak.value
        lines = [f"{self.peak.threads} thread(s), {self.lanes} float32 lanes, median round {idle:.0%} of the best"]
        lines.append(f"{'peak':8} {rate(self.peak.value)}")
        return "\n".join(lines + [f"{name:8} {rate(value, 'B/s')}" for name, value in self.bandwidths.items()])


def ceilings(threads: int = 1, machine: Machine | None = None) -> Ceilings:
    """Measure all ceilings, which takes a second or two.

    Args:
        threads: Number of threads, each with its own data.
        machine: The machine's facts; read by default.

    Raises:
        MeasureError: The number of threads is less than 1, or LLVM cannot compile for this machine.
    """
    machine = machine or this_machine()
    lanes = machine.vector.float32_lanes or PORTABLE_LANES
    return Ceilings(peak(threads, lanes), tuple(bandwidth(threads, machine)), lanes)


def peak(
    threads: int = 1, lanes: int | None = None, rounds: int = ROUNDS, accumulators: Sequence[int] = ACCUMULATORS
) -> Ceiling:
    """Measure float32 operations per second from registers; a multiply-add counts as two.

    Args:
        threads: Number of threads.
        lanes: float32 per vector; the host's by default.
        rounds: Number of rounds for each number of accumulators.
        accumulators: Numbers of independent sums to try; too few leave multipliers idle.

    Raises:
        MeasureError: The number of threads is less than 1, or LLVM cannot compile for this machine.
    """
    lanes = lanes or this_machine().vector.float32_lanes or PORTABLE_LANES
    measured = [_peak(threads, lanes, count, rounds) for count in accumulators]
    return max(measured, key=lambda ceiling: ceiling.value)


def _peak(threads: int, lanes: int, accumulators: int, rounds: int) -> Ceiling:
    run = Native(multiply_add_source(lanes, accumulators))

    def worker() -> Callable[[int], None]:
        buffer = np.linspace(0.4, 0.6, lanes * (accumulators + 1), dtype=np.float32)
        factors, sums = buffer[:lanes], buffer[lanes:]
        return lambda count: run(sums.ctypes.data, 0, factors.ctypes.data, count, 1)

    return measure_rate(worker, 2.0 * lanes * accumulators, threads, rounds)


def bandwidth(threads: int = 1, machine: Machine | None = None, rounds: int = ROUNDS) -> list[Bandwidth]:
    """Measure bytes per second of a = b + s c over arrays of growing size.

    Bytes are counted as in STREAM: two arrays read, one written; write-allocate traffic is not counted.

    Args:
        threads: Number of threads, each with its own arrays.
        machine: The machine's facts; read by default.
        rounds: Number of rounds for each size.

    Raises:
        MeasureError: The number of threads is less than 1, or LLVM cannot compile for this machine.
    """
    machine = machine or this_machine()
    lanes = machine.vector.float32_lanes or PORTABLE_LANES
    run = Native(triad_source(lanes))
    max_size = (machine.memory.limit or machine.memory.total or _MAX_SIZE) // 8
    bandwidths = []
    for size in sizes(machine.caches, threads, max_size):
        count = max(size // (_ARRAYS * 4 * lanes * UNROLLED), 1) * UNROLLED
        working_set = _ARRAYS * 4 * lanes * count

        def worker(count: int = count) -> Callable[[int], None]:
            a, b, c, buffer = _arrays(count * lanes)
            return lambda repeats, _keep_alive=buffer: run(a, b, c, count, repeats)

        ceiling = measure_rate(worker, float(working_set), threads, rounds)
        bandwidths.append(Bandwidth(working_set, level(working_set, machine.caches, threads), ceiling))
    return bandwidths


def reading(threads: int = 1, machine: Machine | None = None, rounds: int = ROUNDS) -> Ceiling:
    """Measure bytes per second of a sum over an array in memory, four times the last cache: nothing is written.

    Args:
        threads: Number of threads, each with its own array.
        machine: The machine's facts; read by default.
        rounds: Number of rounds.

    Raises:
        MeasureError: The number of threads is less than 1, or LLVM cannot compile for this machine.
    """
    machine = machine or this_machine()
    lanes = machine.vector.float32_lanes or PORTABLE_LANES
    run = Native(read_source(lanes))
    size = sizes(machine.caches, threads, (machine.memory.limit or machine.memory.total or _MAX_SIZE) // 8)[-1]
    count = size // (4 * lanes * UNROLLED) * UNROLLED

    def worker() -> Callable[[int], None]:
        array, sums = np.full(count * lanes, 0.5, np.float32), np.zeros(lanes, np.float32)
        return lambda repeats: run(sums.ctypes.data, array.ctypes.data, sums.ctypes.data, count, repeats)

    return measure_rate(worker, 4.0 * lanes * count, threads, rounds)


def _arrays(length: int) -> tuple[int, int, int, np.ndarray]:
    """Return the addresses of three arrays, aligned to cache lines, and the buffer that holds them.

    Their distance exceeds their length by a few lines: at a multiple of 4 KiB, stores would appear to conflict with
    subsequent loads (4K aliasing in Intel's optimization manual).
    """
    distance = -(-length * 4 // _LINE) * _LINE + 5 * _LINE
    buffer = np.full((3 * distance + _LINE) // 4, 0.5, np.float32)
    first = -(-buffer.ctypes.data // _LINE) * _LINE
    return first, first + distance, first + 2 * distance, buffer


def sizes(caches: CacheSizes, threads: int, max_size: int) -> list[int]:
    """Return bytes per thread, growing by sqrt(2) until all threads together use four times the last cache."""
    sizes = [size for size in (caches.l1d, caches.l2, caches.l3) if size]
    last = min(4 * max(sizes, default=16 * 2**20), _MAX_SIZE, max_size) // threads
    steps = max(math.ceil(2 * math.log2(max(last / _FIRST_SIZE, 1))), 0)
    return [round(_FIRST_SIZE * 2 ** (step / 2)) for step in range(steps + 1)]


def level(size: int, caches: CacheSizes, threads: int) -> str | None:
    """Return the level that holds a thread's working set of this size, None near a border.

    A level holds from one and a half times the capacity of the level before up to three quarters of its own. First and
    second level are private to a core; the third is shared.
    """
    l3 = None if caches.l3 is None else caches.l3 / threads
    capacities = [(name, size) for name, size in (("L1", caches.l1d), ("L2", caches.l2), ("L3", l3)) if size]
    before = 0.0
    for name, capacity in capacities:
        if 1.5 * before <= size <= 0.75 * capacity:
            return name
        before = max(before, capacity)
    return "memory" if capacities and size >= 2 * before else None


def measure_rate(
    worker: Callable[[], Callable[[int], None]],
    unit: float,
    threads: int,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Ceiling:
    """Measure the combined rate of several threads.

    Args:
        worker: Called in each thread; returns a function that does a number of units of work.
        unit: Operations or bytes per unit.
        threads: Number of threads.
        rounds: Number of rounds; in each, all threads start together, and the last one to finish ends it.
        clock: Returns seconds.

    Raises:
        MeasureError: The number of threads or rounds is less than 1.
    """
    if min(threads, rounds) < 1:
        got = f"{threads} threads, {rounds} rounds"
        raise MeasureError("invalid number of threads or rounds", expected="1 or more", got=got)
    units = _calibrate(worker(), clock)
    barrier = threading.Barrier(threads)
    spans: list[list[tuple[float, float]]] = [[] for _ in range(threads)]

    def run(thread: int) -> None:
        try:
            if threads > 1 and sys.platform == "linux":  # a processor for each thread: two may share one otherwise
                allowed = sorted(os.sched_getaffinity(0))
                os.sched_setaffinity(0, {allowed[thread % len(allowed)]})
            work = worker()
            work(units)
            for _ in range(rounds):
                barrier.wait()
                start = clock()
                work(units)
                spans[thread].append((start, clock()))
        except BaseException:
            barrier.abort()
            raise

    _run_threads(run, threads)
    durations = [max(end for _, end in each) - min(start for start, _ in each) for each in zip(*spans, strict=True)]
    return Ceiling(tuple(threads * units * unit / seconds for seconds in durations), threads)


def _calibrate(work: Callable[[int], None], clock: Callable[[], float]) -> int:
    """Return how many units take about `SECONDS`, doubling from one; another program may interrupt one of two tries."""

    def seconds() -> float:
        start = clock()
        work(units)
        return clock() - start

    units = 1
    while min(seconds(), seconds()) < SECONDS and units < 2**40:
        units *= 2
    return units


def all_threads() -> int:
    """Return the number of threads that keeps all processors of this process busy."""
    cores = this_machine().cores
    return max(int(cores.usable or cores.logical or 1), 1)


def _run_threads(run: Callable[[int], None], count: int) -> None:
    """Run a function in several threads, with the thread's index; raise the first error."""
    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run, thread) for thread in range(count)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    causes = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise (causes or errors)[0]
