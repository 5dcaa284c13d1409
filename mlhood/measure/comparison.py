"""Alternatives compared: checked for agreement, then timed interleaved, so that a disturbance affects all of them.

A machine is never idle and its clock frequency never constant. So the alternatives are not timed one after another but
in rounds: each round calls all of them in a new random order, and they are compared within rounds. Where the operating
system counts preemptions, a round is the least disturbed of several attempts. This follows Georges, Buytaert, Eeckhout,
"Statistically rigorous Java performance evaluation" (OOPSLA 2007), and Kalibera and Jones, "Rigorous benchmarking in
reasonable time" (ISMM 2013), with medians instead of means.
"""

from __future__ import annotations

import contextlib
import gc
import math
import random
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mlhood.errors import MeasureError
from mlhood.measure.agreement import arrays, check_agreement, finisher
from mlhood.measure.machine import machine as this_machine
from mlhood.measure.measurement import Comparison, Measurement
from mlhood.measure.threading import threads as fix_threads

MIN_ROUNDS = 21
SHORTEST = 1e-3
MAX_REPEATS = 10_000_000
WARM_UP_CALLS = 2
# A round during which the process was preempted is repeated, unless it takes longer than this many seconds, and as
# often in all as there are rounds: on a busy machine every attempt is interrupted.
MAX_ATTEMPTS = 6
REPEATABLE_SECONDS = 0.05
clock = time.perf_counter
Cache = Literal["interleaved", "hot"]

__all__ = ["Comparison", "compare"]


@dataclass
class _Alternative:
    """An alternative while it is being measured."""

    name: str
    call: Callable[[], Any]
    finish: Callable[[Any], object] | None = None
    first: float = 0.0
    repeats: int = 1
    seconds: list[float] = field(default_factory=list)

    def run(self, repeats: int) -> float:
        """Return the duration of `repeats` calls together."""
        call, finish = self.call, self.finish
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
    rounds: int = MIN_ROUNDS,
    threads: int | None = None,
    cache: Cache = "interleaved",
    check: bool = True,
    rtol: float = 1e-3,
    atol: float = 1e-5,
    shortest: float = SHORTEST,
) -> Comparison:
    """Time alternatives that compute the same result.

    The first call of each is timed separately, as it may compile; its result is compared with the baseline's. Calls
    shorter than `shortest` are repeated within a round until they take that long together.

    Args:
        alternatives: Name -> function without arguments. Its result (arrays of NumPy, torch or JAX, numbers, None, or
            lists, tuples and dictionaries of them) is waited for and compared.
        baseline: Name of the reference; the first alternative by default.
        flops: Floating-point operations of one call, for all or by name.
        rounds: Number of timings of each alternative, at least 21.
        threads: Set BLAS, torch, Numba and our kernels to this number of threads; unchanged by default. ONNX Runtime
            and JAX are configured beforehand (`session_options`, `environment`); where they are loaded, the result's
            note says so.
        cache: `interleaved`: the caches hold what the other alternatives have left. `hot`: each alternative is called
            once, untimed, before it is timed.
        check: Compare the results. Without it the measurements are not marked as agreed.
        rtol: Tolerance relative to the baseline's element.
        atol: Tolerance relative to the largest of the baseline's elements.
        shortest: Minimum duration of a timing in seconds.

    Raises:
        MeasureError: An alternative fails, or disagrees with the baseline; or an argument is invalid.
    """
    baseline = _check_arguments(alternatives, baseline, rounds, cache, shortest)
    operations = _operations(flops, alternatives)
    measured = [_Alternative(name, call) for name, call in alternatives.items()]
    with contextlib.nullcontext() if threads is None else fix_threads(threads) as fixed:
        _first_calls(measured, baseline, (rtol, atol) if check else None)
        if fixed is not None:
            fixed.apply()  # to libraries that the first calls have loaded
        for alternative in measured:
            _warm_up(alternative, shortest)
        interrupted = _time_rounds(measured, rounds, cache)
        unfixed = [] if fixed is None else fixed.notes()
    run = uuid.uuid4().hex
    return Comparison(
        {a.name: Measurement(tuple(a.seconds), operations.get(a.name), run, check, threads) for a in measured},
        baseline=baseline,
        cache=cache,
        threads=threads,
        first={a.name: a.first for a in measured},
        repeats={a.name: a.repeats for a in measured},
        unfixed=unfixed,
        interrupted=interrupted,
        machine=this_machine().as_dict(),
    )


def _check_arguments(
    alternatives: Mapping[str, Callable[[], Any]], baseline: str | None, rounds: int, cache: str, shortest: float
) -> str:
    if not alternatives or not all(isinstance(name, str) and callable(call) for name, call in alternatives.items()):
        got = {name: type(call).__name__ for name, call in alternatives.items()}
        raise MeasureError("there is nothing to compare", expected='{"name": function, ...}', got=got)
    if rounds < MIN_ROUNDS:
        raise MeasureError("too few rounds", expected=f"at least {MIN_ROUNDS} rounds", got=rounds)
    if cache not in ("interleaved", "hot"):
        raise MeasureError("unknown state of the caches", expected="interleaved or hot", got=repr(cache))
    if not 0 <= shortest < math.inf:
        raise MeasureError("invalid `shortest`", expected="seconds, 0 or more", got=shortest)
    baseline = next(iter(alternatives)) if baseline is None else baseline
    if baseline not in alternatives:
        raise MeasureError("the baseline is not an alternative", expected=list(alternatives), got=repr(baseline))
    return baseline


def _operations(flops: float | Mapping[str, float] | None, alternatives: Mapping[str, Any]) -> Mapping[str, float]:
    if flops is None:
        return {}
    if not isinstance(flops, Mapping):
        return dict.fromkeys(alternatives, flops)
    unknown = [name for name in flops if name not in alternatives]
    if unknown:
        raise MeasureError("unknown alternative in `flops`", expected=list(alternatives), got=unknown)
    return flops


def _first_calls(measured: list[_Alternative], baseline: str, tolerance: tuple[float, float] | None) -> None:
    """Call each alternative once, the baseline first, and compare the results."""
    reference = None
    for alternative in sorted(measured, key=lambda a: a.name != baseline):
        with _attribute_errors(alternative.name):
            start = clock()
            result = alternative.call()
            alternative.finish = finisher(result)
            if alternative.finish is not None:
                alternative.finish(result)
            alternative.first = clock() - start
            named = (alternative.name, arrays(result)) if tolerance else None
        if tolerance is None or named is None:
            continue
        reference = reference or named
        check_agreement(reference, named, *tolerance)


def _warm_up(alternative: _Alternative, shortest: float) -> None:
    """Warm up, then find the smallest number of repeats that takes at least `shortest`."""
    with _attribute_errors(alternative.name):
        alternative.run(WARM_UP_CALLS)
        while (elapsed := alternative.run(alternative.repeats)) < shortest and alternative.repeats < MAX_REPEATS:
            factor = 1.2 * shortest / elapsed if elapsed > 0 else 10
            repeats = math.ceil(alternative.repeats * min(max(factor, 1.2), 10))
            alternative.repeats = min(repeats, MAX_REPEATS)


def _time_rounds(measured: list[_Alternative], rounds: int, cache: Cache) -> int:
    """Time all rounds, and return how many of them were interrupted in every attempt."""
    interrupted, spare = 0, rounds
    draw = random.Random(0)  # noqa: S311 - orders, not secrets
    with _collection_disabled():
        for _ in range(rounds):
            order = draw.sample(measured, len(measured))
            attempts = _attempts(order, cache, min(MAX_ATTEMPTS, 1 + spare))
            spare -= len(attempts) - 1
            count, seconds = min(attempts, key=lambda attempt: attempt[0])
            interrupted += count > 0
            for alternative, elapsed in zip(order, seconds, strict=True):
                if elapsed <= 0:
                    raise MeasureError(
                        "the clock did not advance while the alternative ran",
                        where=f"{alternative.name!r}, {alternative.repeats:,} calls",
                        todo="use a longer `shortest`, or a clock with a finer resolution",
                    )
                alternative.seconds.append(elapsed)
    return interrupted


def _attempts(order: list[_Alternative], cache: Cache, most: int) -> list[tuple[int, list[float]]]:
    """Time a round until it is not interrupted; return interruptions and times of each attempt.

    The round is repeated as a whole: an alternative repeated alone would find its own data in the caches.
    """
    attempts = []
    while len(attempts) < most:
        before = preemptions()
        seconds = [_time(alternative, cache) for alternative in order]
        attempts.append((preemptions() - before, seconds))
        total = sum(elapsed * alternative.repeats for elapsed, alternative in zip(seconds, order, strict=True))
        if attempts[-1][0] == 0 or total > REPEATABLE_SECONDS:
            break
    return attempts


def _time(alternative: _Alternative, cache: Cache) -> float:
    """Return the mean duration of a call over all repeats."""
    with _attribute_errors(alternative.name):
        if cache == "hot":
            alternative.run(1)
        return alternative.run(alternative.repeats) / alternative.repeats


def preemptions() -> int:
    """Return the number of involuntary context switches of this process so far; 0 where the system has no count."""
    return _usage("ru_nivcsw")


def page_faults() -> int:
    """Return the number of pages that the system has provided to this process; 0 where the system has no count."""
    return _usage("ru_minflt")


def _usage(field: str) -> int:
    if sys.platform == "win32":
        return 0
    import resource

    return getattr(resource.getrusage(resource.RUSAGE_SELF), field)


@contextlib.contextmanager
def _collection_disabled() -> Iterator[None]:
    """Disable the garbage collector, which would run in whichever alternative reaches its threshold."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _attribute_errors(name: str) -> Iterator[None]:
    """Name the alternative in errors that the block raises."""
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
            todo="call it outside of `compare` to see the complete traceback",
        ) from error


def _line(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}, line {last.lineno}"
