"""Where the time of a JAX function goes: tracing, lowering, compilation, execution and transfers.

(JAX's guide "Benchmarking JAX code", docs.jax.dev/en/latest/benchmarking.html: separate them, and block on results.)
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

RUNS = 7  # of the stages that can be repeated


@dataclass(frozen=True)
class Stages:
    """Seconds of each stage.

    Args:
        trace: Running the Python function with tracers, which yields a jaxpr.
        lower: Lowering the jaxpr to StableHLO.
        compile: Compiling that to machine code by XLA.
        first: The first call of the compiled function.
        run: The median of later calls.
        to_device: The median of transferring the arguments to the device.
        from_device: The median of converting the result to a NumPy array; on a CPU without a copy.
    """

    trace: float
    lower: float
    compile: float
    first: float
    run: float
    to_device: float
    from_device: float


def stages(function: Callable[..., Any], *arguments: Any, device: Any = None) -> Stages:
    """Trace, lower, compile and run a function, and return how long each stage takes.

    Nothing is reused from earlier calls, unless JAX's persistent compilation cache is on.

    Args:
        function: A pure JAX function, not compiled.
        arguments: NumPy arrays or numbers, or trees of them.
        device: One of `jax.devices()`; JAX's default if omitted.
    """
    to_device = [_timed(lambda: jax.device_put(arguments, device))[0] for _ in range(RUNS)]
    on_device = jax.device_put(arguments, device)
    # the lambda is a new function: JAX caches the traces of functions that it has seen
    trace, traced = _timed(lambda: jax.jit(lambda *primals: function(*primals)).trace(*on_device))
    lower, lowered = _timed(traced.lower)
    compile_, compiled = _timed(lowered.compile)
    first, _ = _timed(lambda: compiled(*on_device))
    run, from_device = [], []
    for _ in range(RUNS):
        seconds, result = _timed(lambda: compiled(*on_device))
        run.append(seconds)
        from_device.append(_timed(lambda result=result: jax.device_get(result))[0])
        del result  # so that the next call can reuse its memory instead of touching new pages
    return Stages(trace, lower, compile_, first, *map(statistics.median, (run, to_device, from_device)))


def _timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds until the result is ready, and the result."""
    start = time.perf_counter()
    result = step()
    jax.block_until_ready(result)
    return time.perf_counter() - start, result
