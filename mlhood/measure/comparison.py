"""Alternatives side by side: checked for agreement, then timed in turns, so that what slows one slows all.

A machine is never quiet and its clock never constant. So the alternatives are not timed one after the other but in
rounds, each of which calls them all in an order drawn anew, and they are compared within rounds. Where the system
counts how often it has taken the processor away, the least disturbed of a few tries is the round. This follows
Georges, Buytaert, Eeckhout, "Statistically rigorous Java performance evaluation" (OOPSLA 2007), and of Kalibera and
Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013), with medians for means.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlhood.errors import MeasureError
from mlhood.measure.agreement import arrays, check_agreement, finisher
from mlhood.measure.machine import machine as this_machine
from mlhood.measure.measurement import Measurement
from mlhood.measure.result import Comparison
from mlhood.measure.threading import Threads, threads

FEWEST_ROUNDS = 21
SHORTEST = 1e-3
MOST_REPEATS = 10_000_000
WARM_UP_CALLS = 2
# A round in which the scheduler has taken the processor away is measured again, where that does not take long.
MOST_TRIES = 6
LONGEST_AGAIN = 0.05
Cache = Literal["interleaved", "hot"]

__all__ = ["Comparison", "compare"]


@dataclass
class _Alternative:
    """One alternative while it is being measured."""

    name: str
    call: Callable[[], Any]
    clock: Callable[[], float]
    finish: Callable[[Any], object] | None = None
    first: float = 0.0
    repeats: int = 1
    seconds: list[float] = field(default_factory=list)

    def run(self, repeats: int) -> float:
        """Return how long that many calls take together."""
        call, finish, clock = self.call, self.finish, self.clock
        start = clock()
        if finish is None:
            for _ in range(repeats):
                call()
        else:
            for _ in range(repeats):
                finish(call())
        return clock() - start


def compare(
    alternatives: Mapping[str, Callable[[], Any]],
    *,
    baseline: str | None = None,
    flops: float | Mapping[str, float] | None = None,
    rounds: int = FEWEST_ROUNDS,
    threads: int | None = None,
    cache: Cache = "interleaved",
    check: bool = True,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    shortest: float = SHORTEST,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    interruptions: Callable[[], int] | None = None,
    describe_machine: bool = True,
) -> Comparison:
    """Time alternatives that compute the same.

    The first call of each is timed on its own (it may compile); its result is compared with the baseline's. Calls
    shorter than `shortest` are repeated within a round until they last that long together.

    Args:
        alternatives: Name -> call without arguments. What it returns (arrays of NumPy, torch or JAX, numbers, None, or
            lists, tuples and dictionaries of them) is waited for and compared.
        baseline: The one that others are compared with; the first if left out.
        flops: Floating-point operations of one call, of all or by name.
        rounds: How often each is timed, at least 21.
        threads: Fix the threads of BLAS, torch, Numba and our kernels to this number; left as they are if left out.
            ONNX Runtime and JAX are told before (`session_options`, `environment`); the result says so where they are
            loaded.
        cache: `interleaved`: what an alternative finds in the caches is what the others have left there. `hot`: each
            is called once, untimed, before it is timed.
        check: Compare the results. Without it the measurements do not count as agreed.
        rtol: Allowed difference, relative to the baseline's element.
        atol: Allowed difference, relative to the largest of the baseline's elements.
        shortest: Seconds that a timing lasts at least.
        seed: Of the orders.
        clock: Seconds; only differences matter.
        interruptions: How often the process has been interrupted so far; the system's count if left out.
        describe_machine: Put the machine's facts into the result.

    Raises:
        MeasureError: An alternative fails, or returns something else than the baseline; or what is asked for makes no
            sense.
    """
    baseline = _check_request(alternatives, baseline, rounds, cache, shortest)
    operations = _operations(flops, alternatives)
    measured = [_Alternative(name, call, clock) for name, call in alternatives.items()]
    with _fixed(threads) as fixed:
        _first_calls(measured, baseline, (rtol, atol) if check else None)
        if fixed is not None:
            fixed.apply()  # to what the first calls have loaded
        for one in measured:
            _warm_up(one, shortest)
        draw = random.Random(seed)  # noqa: S311 - orders, not secrets
        count = switched_out if interruptions is None else interruptions
        disturbed = _rounds(measured, rounds, cache, draw, count)
        facts = this_machine().as_dict() if describe_machine else {}
        unfixed = [] if fixed is None else fixed.notes()
    run = uuid.uuid4().hex
    return Comparison(
        {one.name: Measurement(tuple(one.seconds), operations.get(one.name), run, check) for one in measured},
        baseline=baseline,
        cache=cache,
        threads=threads,
        first={one.name: one.first for one in measured},
        repeats={one.name: one.repeats for one in measured},
        unfixed=unfixed,
        interrupted=disturbed,
        machine=facts,
    )


def _check_request(
    alternatives: Mapping[str, Callable[[], Any]], baseline: str | None, rounds: int, cache: str, shortest: float
) -> str:
    if not alternatives or not all(isinstance(name, str) and callable(call) for name, call in alternatives.items()):
        got = {name: type(call).__name__ for name, call in alternatives.items()}
        raise MeasureError("there is nothing to compare", expected='{"name": function, ...}', got=got)
    if rounds < FEWEST_ROUNDS:
        raise MeasureError("so few rounds say little", expected=f"at least {FEWEST_ROUNDS} rounds", got=rounds)
    if cache not in ("interleaved", "hot"):
        raise MeasureError("this is no state of the caches", expected="interleaved or hot", got=repr(cache))
    if not 0 <= shortest < math.inf:
        raise MeasureError("this is no shortest timing", expected="seconds, 0 or more", got=shortest)
    chosen = next(iter(alternatives)) if baseline is None else baseline
    if chosen not in alternatives:
        raise MeasureError("the baseline is not an alternative", expected=list(alternatives), got=repr(chosen))
    return chosen


def _operations(flops: float | Mapping[str, float] | None, alternatives: Mapping[str, Any]) -> Mapping[str, float]:
    if flops is None:
        return {}
    if not isinstance(flops, Mapping):
        return dict.fromkeys(alternatives, flops)
    unknown = [name for name in flops if name not in alternatives]
    if unknown:
        raise MeasureError("operations are told of what is not there", expected=list(alternatives), got=unknown)
    return flops


@contextlib.contextmanager
def _fixed(count: int | None) -> Iterator[Threads | None]:
    if count is None:
        yield None
        return
    with threads(count) as fixed:
        yield fixed


def _first_calls(measured: list[_Alternative], baseline: str, tolerance: tuple[float, float] | None) -> None:
    """Call each once, the baseline before the others, and compare what they return."""
    right = None
    for one in sorted(measured, key=lambda one: one.name != baseline):
        with _named(one.name):
            start = one.clock()
            result = one.call()
            one.finish = finisher(result)
            if one.finish is not None:
                one.finish(result)
            one.first = one.clock() - start
            found = (one.name, arrays(result)) if tolerance else None
        if tolerance is None or found is None:
            continue
        right = right or found
        check_agreement(right, found, *tolerance)


def _warm_up(one: _Alternative, shortest: float) -> None:
    """Call it a few times more, then choose its repeats: the first number that lasts at least `shortest`."""
    with _named(one.name):
        one.run(WARM_UP_CALLS)
        while (lasted := one.run(one.repeats)) < shortest and one.repeats < MOST_REPEATS:
            wanted = 1.2 * shortest / lasted if lasted > 0 else 10
            one.repeats = min(math.ceil(one.repeats * min(max(wanted, 1.2), 10)), MOST_REPEATS)


def _rounds(
    measured: list[_Alternative], rounds: int, cache: Cache, draw: random.Random, interruptions: Callable[[], int]
) -> int:
    """Measure all rounds, and return how many of them were interrupted nevertheless."""
    disturbed = 0
    with _no_collection():
        for _ in range(rounds):
            order = draw.sample(measured, len(measured))
            count, seconds = _least_disturbed(order, cache, interruptions)
            disturbed += count > 0
            for one, lasted in zip(order, seconds, strict=True):
                one.seconds.append(_positive(lasted, one))
    return disturbed


def _least_disturbed(
    order: list[_Alternative], cache: Cache, interruptions: Callable[[], int]
) -> tuple[int, list[float]]:
    """Return interruptions and times of a round; of several tries, those of the one with the fewest.

    The whole round is tried again, not one call: that would find in the caches what it has itself left there.
    """
    best = None
    for _ in range(MOST_TRIES):
        before = interruptions()
        seconds = [_time(one, cache) for one in order]
        count = interruptions() - before
        if best is None or count < best[0]:
            best = count, seconds
        if count == 0 or sum(lasted * one.repeats for lasted, one in zip(seconds, order, strict=True)) > LONGEST_AGAIN:
            break
    return best or (0, [])


def _time(one: _Alternative, cache: Cache) -> float:
    """Return the time of one call, from all repeats."""
    with _named(one.name):
        if cache == "hot":
            one.run(1)
        return one.run(one.repeats) / one.repeats


def switched_out() -> int:
    """Return how often the system has taken the processor away from this process; 0 where it does not say."""
    if sys.platform == "win32":
        return 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _positive(seconds: float, one: _Alternative) -> float:
    if seconds > 0:
        return seconds
    raise MeasureError(
        "the clock did not move while the alternative ran",
        where=f"{one.name!r}, {one.repeats:,} calls",
        todo="give a longer `shortest`, or a clock that is finer",
    )


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from running in whichever alternative happens to fill its quota."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which alternative has raised what."""
    try:
        yield
    except MeasureError as error:
        error.parts.setdefault("where", repr(name))
        raise
    except Exception as error:
        raise MeasureError(
            f"the alternative {name!r} raised {type(error).__name__}",
            where=_line(error),
            got=error,
            todo="call it on its own to see the whole traceback",
        ) from error


def _line(error: BaseException) -> str:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return f"{last.tb_frame.f_code.co_filename}, line {last.tb_lineno}" if last else "unknown"
