"""Benchmarks of JAX: ResNet-18 against NumPy, torch and ONNX Runtime, and each operator with and without JAX.

All alternatives of a row are timed in the same rounds. A ratio is an alternative's time over that of compiled JAX:
above 1 JAX is faster. A GPU adds two alternatives, without and with transfers. The stages of a JAX function are timed
apart: tracing, lowering, compilation, execution and transfers. (JAX's guide "Benchmarking JAX code",
docs.jax.dev/en/latest/benchmarking.html: separate them, and block on results.)
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mlhood.jaxlab.operators import cases as rows
from mlhood.jaxlab.operators import network, with_jax
from mlhood.jaxlab.operators.cases import NETWORK, OperatorCase
from mlhood.jaxlab.tables import JAX, NO_JAX
from mlhood.measure import Comparison, compare, session_options
from mlhood.measure.units import duration

EAGER, AS_ARGUMENTS = "JAX eager", "JAX, weights as arguments"
GPU, GPU_WITH_TRANSFERS = "JAX on GPU", "JAX on GPU, with transfers"
Alternatives = dict[str, Callable[[], Any]]
RUNS = 7  # of the stages that can be repeated


@dataclass(frozen=True)
class Row:
    """The measurements of one row.

    Args:
        name: Name of the operator or network.
        flops: Floating-point operations of one call.
        result: The times of all alternatives.
        stages: Compilation and transfer times, by alternative.
    """

    name: str
    flops: int
    result: Comparison
    stages: dict[str, Stages] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: medians in seconds, rates, ratios with intervals, and the stages in seconds."""
        seconds = {name: measured.median for name, measured in self.result.measurements.items()}
        return {
            "case": self.name,
            "flops": self.flops,
            "seconds": seconds,
            "gflops": {name: self.flops / median / 1e9 for name, median in seconds.items()},
            "ratios": {name: asdict(self.result.ratio(name, JAX)) for name in seconds if name != JAX},
            "threads": self.result.threads,
            "stages": {name: asdict(stages) for name, stages in self.stages.items()},
        }

    def __str__(self) -> str:
        """Return the lines that the bench prints."""
        lines = [f"{self.name}:"]
        width = max(map(len, self.result.measurements))
        for name, measurement in self.result.measurements.items():
            ratio = "" if name == JAX else f"  ratio {self.result.ratio(name, JAX)}"
            lines.append(f"  {name:{width}}  {duration(measurement.median):>8}{ratio}{self._stages_text(name)}")
        return "\n".join(lines)

    def _stages_text(self, name: str) -> str:
        if name not in self.stages:
            return ""
        stages = asdict(self.stages[name]).items()
        return "  " + ", ".join(f"{stage.replace('_', ' ')} {duration(seconds)}" for stage, seconds in stages)


def gpu() -> Any:
    """Return the first GPU that JAX can use, or None."""
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        return None


def network_row(threads: int, rounds: int, size: int = rows.SIZE) -> Row:
    """Measure ResNet-18 for one image: JAX compiled, eager and with weights as arguments, NumPy, torch, ONNX Runtime.

    Args:
        threads: Threads of every alternative; JAX's were fixed when its process started.
        rounds: Rounds, in each of which every alternative is timed once.
        size: Height and width of the image.
    """
    case, state = rows.cases(size)[NETWORK], rows.resnet18()
    (image,) = case.arguments
    params, image_on_device = jax.device_put((network.tree(state), image), _cpu())
    eager = partial(network.forward, with_jax)
    as_arguments = jax.jit(eager)
    alternatives = _alternatives(case) | {
        EAGER: lambda: eager(params, image_on_device),
        AS_ARGUMENTS: lambda: as_arguments(params, image_on_device),
        **_other_libraries(state, image, threads),
    }
    seconds = _stages(case) | {AS_ARGUMENTS: stages(eager, network.tree(state), image, device=_cpu())}
    return Row(NETWORK, case.flops, _compare(alternatives, case, threads, rounds), seconds)


def operator_rows(threads: int, rounds: int, size: int = rows.SIZE) -> Iterator[Row]:
    """Yield the measured rows of P5's table, the network's by `network_row`; arguments as there."""
    for name, case in rows.cases(size).items():
        if name == NETWORK:
            yield network_row(threads, rounds, size)
        else:
            yield Row(name, case.flops, _compare(_alternatives(case), case, threads, rounds), _stages(case))


def _cpu() -> Any:
    return jax.devices("cpu")[0]


def _alternatives(case: OperatorCase) -> Alternatives:
    """Return the alternatives of every row: JAX compiled and eager, NumPy, and JAX on a GPU if there is one."""
    compiled, on_cpu = jax.jit(case.with_jax), jax.device_put(case.arguments, _cpu())
    alternatives: Alternatives = {
        JAX: lambda: compiled(*on_cpu),
        EAGER: lambda: case.with_jax(*on_cpu),
        NO_JAX: lambda: case.no_jax(*case.arguments),
    }
    device = gpu()
    if device is not None:
        on_gpu, exact = jax.device_put(case.arguments, device), jax.jit(_in_float32(case.with_jax))
        alternatives[GPU] = lambda: exact(*on_gpu)
        alternatives[GPU_WITH_TRANSFERS] = lambda: jax.device_get(exact(*jax.device_put(case.arguments, device)))
    return alternatives


def _stages(case: OperatorCase) -> dict[str, Stages]:
    seconds = {JAX: stages(case.with_jax, *case.arguments, device=_cpu())}
    device = gpu()
    if device is not None:
        seconds[GPU] = stages(_in_float32(case.with_jax), *case.arguments, device=device)
    return seconds


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with float32 products: GPUs default to TF32's ten bits, and the results would disagree."""

    def run(*arguments: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            return function(*arguments)

    return run


def _compare(alternatives: Alternatives, case: OperatorCase, threads: int, rounds: int) -> Comparison:
    return compare(alternatives, baseline=JAX, flops=case.flops, rounds=rounds, threads=threads)


def _other_libraries(state: dict[str, np.ndarray], image: np.ndarray, threads: int) -> Alternatives:
    """Return ResNet-18 with these weights in torch and in ONNX Runtime."""
    import onnxruntime
    import torch

    from mlhood.exchange import export
    from mlhood.models import resnet18

    model = resnet18()
    # not strict: the state has no `num_batches_tracked`, which inference does not read
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()}, strict=False)
    model.eval()
    tensor = torch.from_numpy(image)
    with tempfile.TemporaryDirectory() as folder:
        path = export(model, image, Path(folder) / "resnet18.onnx")
        session = onnxruntime.InferenceSession(path, session_options(threads), providers=["CPUExecutionProvider"])

    def in_torch() -> Any:
        with torch.inference_mode():
            return model(tensor)

    return {"torch eager": in_torch, "ONNX Runtime": lambda: session.run(None, {"image": image})[0]}


# -- the stages of a JAX function


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
