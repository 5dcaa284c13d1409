"""Where the time of a function in JAX goes: traced, lowered, compiled, run, and its data carried there and back.

(JAX's guide "Benchmarking JAX code", docs.jax.dev/en/latest/benchmarking.html: tell them apart, and wait for results.)
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax

from mlhood.errors import XlaError

RUNS = 7


@dataclass(frozen=True)
class Stages:
    """Seconds of each part of a function's life.

    Args:
        trace: Python runs once with tracers, and leaves a jaxpr.
        lower: The jaxpr becomes StableHLO.
        compile: XLA makes machine code of it.
        first: The first call of that.
        run: A later one: the median.
        to_device: The arguments are brought to where it runs: the median.
        from_device: The result becomes a NumPy array: the median. A CPU's own memory needs no copy.
    """

    trace: float
    lower: float
    compile: float
    first: float
    run: float
    to_device: float
    from_device: float

    @property
    def before(self) -> float:
        """What it costs before the first call: traced, lowered and compiled."""
        return self.trace + self.lower + self.compile

    def as_dict(self) -> dict[str, float]:
        """Return plain data: seconds by name."""
        return asdict(self)


def stages(function: Callable[..., Any], *arguments: Any, runs: int = RUNS, device: Any = None) -> Stages:
    """Take a function through its life once, and say how long each part takes.

    Nothing of an earlier call is used again, unless JAX has been told to keep compiled programs on disk.

    Args:
        function: A pure function of JAX, not compiled yet.
        arguments: NumPy arrays or numbers, or trees of them.
        runs: How often what can be repeated is.
        device: Of `jax.devices()`; JAX's first if left out.

    Raises:
        XlaError: It is to be run less than once.
    """
    if runs < 1:
        raise XlaError("a median needs a run", expected="1 or more", got=runs)
    carried = [_timed(lambda: jax.device_put(arguments, device))[0] for _ in range(runs)]
    placed = jax.device_put(arguments, device)
    # by itself JAX would remember the trace of a function that it has seen
    trace, traced = _timed(lambda: jax.jit(lambda *given: function(*given)).trace(*placed))
    lower, lowered = _timed(traced.lower)
    compiling, compiled = _timed(lowered.compile)
    first, _ = _timed(lambda: compiled(*placed))
    later, back = [], []
    for _ in range(runs):
        seconds, result = _timed(lambda: compiled(*placed))
        later.append(seconds)
        back.append(_timed(lambda result=result: jax.device_get(result))[0])
        del result  # or the next call would have to find memory that was never used, which takes longer
    medians = (statistics.median(timed) for timed in (later, carried, back))
    return Stages(trace, lower, compiling, first, *medians)


def break_even(compile_seconds: float, no_jax: float, jax: float) -> float:
    """Return the fewest calls for which compiling and calling takes less time than calling what needs no compiling.

    Args:
        compile_seconds: Before the first call.
        no_jax: Seconds of a call without JAX.
        jax: Seconds of a compiled call.

    Returns:
        The smallest whole n with compile_seconds + n * jax < n * no_jax; infinity if there is none.
    """
    if jax >= no_jax:
        return math.inf
    return math.floor(compile_seconds / (no_jax - jax)) + 1


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """Return how long a step takes until what it returns is there, and that."""
    start = time.perf_counter()
    result = step()
    jax.block_until_ready(result)
    return time.perf_counter() - start, result
