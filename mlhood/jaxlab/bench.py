"""How fast JAX is: ResNet-18 beside NumPy, torch and ONNX Runtime, and each operator with and without JAX.

All sides of a row take turns in the same rounds. A ratio is the other's time over that of compiled JAX, so above 1 JAX
is faster. With a GPU there are two sides more: what it takes there, and with the way there and back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mlhood.jaxlab import timing
from mlhood.jaxlab.operators import cases as rows
from mlhood.jaxlab.operators import network, with_jax
from mlhood.jaxlab.operators.cases import Case
from mlhood.jaxlab.tables import JAX, NETWORK, NO_JAX
from mlhood.jaxlab.timing import Stages
from mlhood.kernels import bench as kernels_bench
from mlhood.measure import Comparison, compare, session_options
from mlhood.measure.units import duration

EAGER, AS_ARGUMENTS = "JAX eager", "JAX, weights as arguments"
GPU, GPU_AND_BACK = "JAX on GPU", "JAX on GPU, there and back"
Sides = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Row:
    """One row, measured.

    Args:
        name: Of the operator or network.
        flops: Of one call.
        result: Of all sides.
        stages: What compiling takes, and transfers, by side.
    """

    name: str
    flops: int
    result: Comparison
    stages: dict[str, Stages] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: medians in seconds, rates, ratios with intervals, and the stages in seconds."""
        measured = kernels_bench.Case(self.name, JAX, self.flops, self.result).row()
        return {**measured, "stages": {side: one.as_dict() for side, one in self.stages.items()}}

    def __str__(self) -> str:
        """Return the lines that the bench prints."""
        lines = [f"{self.name}:"]
        width = max(map(len, self.result.measurements))
        for side, one in self.result.measurements.items():
            ratio = "" if side == JAX else f"  ratio {self.result.ratio(side, JAX)}"
            lines.append(f"  {side:{width}}  {duration(one.median):>8}{ratio}{self._compiling(side)}")
        return "\n".join(lines)

    def _compiling(self, side: str) -> str:
        if side not in self.stages:
            return ""
        told = (f"{name.replace('_', ' ')} {duration(one)}" for name, one in self.stages[side].as_dict().items())
        return "  " + ", ".join(told)


def accelerator() -> Any:
    """Return the first GPU that JAX can use, or None."""
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        return None


def network_row(threads: int, rounds: int, size: int = rows.SIZE) -> Row:
    """Measure ResNet-18 for one image: compiled JAX and its other forms, NumPy, torch and ONNX Runtime.

    Args:
        threads: Of every side; JAX was told when its process started.
        rounds: In each of which every side is timed once.
        size: Height and width of the image.
    """
    case, state = rows.cases(size)[NETWORK], rows.resnet18()
    (image,) = case.arguments
    params, placed = jax.device_put((network.tree(state), image), _host())
    eager = partial(network.forward, with_jax)
    as_arguments = jax.jit(eager)
    sides = _sides(case)
    sides |= {
        EAGER: lambda: eager(params, placed),
        AS_ARGUMENTS: lambda: as_arguments(params, placed),
        **_peers(state, image, threads),
    }
    known = (eager, network.tree(state), image)
    return Row(NETWORK, case.flops, _compared(sides, case, threads, rounds),
               {**_stages(case), AS_ARGUMENTS: timing.stages(*known, device=_host())})  # fmt: skip


def operator_rows(threads: int, rounds: int, size: int = rows.SIZE) -> Iterator[Row]:
    """Measure the rows of P5's table, the network's by `network_row`; arguments as there."""
    for name, case in rows.cases(size).items():
        if name == NETWORK:
            yield network_row(threads, rounds, size)
        else:
            yield Row(name, case.flops, _compared(_sides(case), case, threads, rounds), _stages(case))


def _host() -> Any:
    return jax.devices("cpu")[0]


def _sides(case: Case) -> Sides:
    """Return what every row has: compiled, operator by operator, in NumPy, and on a GPU where there is one."""
    compiled, placed = jax.jit(case.with_jax), jax.device_put(case.arguments, _host())
    sides: Sides = {
        JAX: lambda: compiled(*placed),
        EAGER: lambda: case.with_jax(*placed),
        NO_JAX: lambda: case.no_jax(*case.arguments),
    }
    device = accelerator()
    if device is not None:
        there, exact = jax.device_put(case.arguments, device), jax.jit(_exact(case.with_jax))
        sides[GPU] = lambda: exact(*there)
        sides[GPU_AND_BACK] = lambda: jax.device_get(exact(*jax.device_put(case.arguments, device)))
    return sides


def _stages(case: Case) -> dict[str, Stages]:
    found = {JAX: timing.stages(case.with_jax, *case.arguments, device=_host())}
    device = accelerator()
    if device is not None:
        found[GPU] = timing.stages(_exact(case.with_jax), *case.arguments, device=device)
    return found


def _exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return it with products in float32: by itself a GPU rounds factors to ten bits, and the sides would disagree."""

    def run(*arguments: Any) -> Any:
        with jax.default_matmul_precision("float32"):
            return function(*arguments)

    return run


def _compared(sides: Sides, case: Case, threads: int, rounds: int) -> Comparison:
    return compare(sides, baseline=JAX, flops=case.flops, rounds=rounds, threads=threads)


def _peers(state: dict[str, np.ndarray], image: np.ndarray, threads: int) -> Sides:
    """Return ResNet-18 with these weights in torch and in ONNX Runtime."""
    import onnxruntime
    import torch

    from mlhood.exchange import export
    from mlhood.models import resnet18

    model = resnet18()
    # counters of batches are not among them, and not read
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
