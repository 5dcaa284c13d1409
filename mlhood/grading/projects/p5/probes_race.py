"""The timed computations of P5.3, run in the student's process: conv + bn + relu, with padding, and ResNet-18.

Compiled programs and weights are made once, and the grader keeps their handles: these functions are new in each
request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from mlhood.grading.checks.probes import Kept
from mlhood.jaxlab.operators import layouts, network, with_jax
from mlhood.jaxlab.operators.cases import resnet18


class Program:
    """A program that JAX compiles at its first call.

    Attributes:
        traces: How often it was traced: once for the same shapes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.traces = 0
        self._function = function
        self.run = jax.jit(self._counted)

    def _counted(self, *arguments: Any) -> Any:
        self.traces += 1  # what a compiled program runs does not contain this
        return self._function(*arguments)


def on_device(*arrays: np.ndarray) -> Kept:
    """Keep arrays on JAX's device, where the table's are, so that their way there is not timed."""
    return Kept(jax.block_until_ready(jax.device_put(arrays)))


def block_program() -> Program:
    """Return the block as a program."""
    return Program(partial(network.fused_block, with_jax, padding=1))


def own(notebook: dict[str, Any], kept: Kept, calls: int, channels: list[int]) -> Any:
    """Run the block with the notebook's operators; return some channels of the last result."""
    block = partial(network.fused_block, _operators(notebook), padding=1)
    return _repeated(block, kept, calls)[:, channels]


def compiled(program: Program, kept: Kept, calls: int, channels: list[int]) -> dict[str, Any]:
    """Run the block with JAX on arrays of the device."""
    return _report(program, _repeated(program.run, kept, calls)[:, channels], kept)


def prepared_network(seed: int) -> SimpleNamespace:
    """Return ResNet-18: its `weights`, and its `program` with these."""
    weights = network.tree(resnet18(seed))
    return SimpleNamespace(weights=weights, program=Program(partial(network.forward, with_jax, weights)))


def own_network(notebook: dict[str, Any], prepared: SimpleNamespace, kept: Kept, calls: int) -> Any:
    """Run ResNet-18 with the notebook's operators."""
    return _repeated(partial(network.forward, _operators(notebook), prepared.weights), kept, calls)


def _operators(notebook: dict[str, Any]) -> Any:
    """Return the notebook's `operators`, to be called with the arrays of the table, whatever their own `layout` is."""
    return layouts.adapted(SimpleNamespace(**notebook["operators"]), layouts.Layout(*notebook["layout"]))


def compiled_network(prepared: SimpleNamespace, kept: Kept, calls: int) -> dict[str, Any]:
    """Run ResNet-18 with JAX on arrays of the device."""
    return _report(prepared.program, _repeated(prepared.program.run, kept, calls), kept)


def _report(program: Program, result: np.ndarray, kept: Kept) -> dict[str, Any]:
    on_device = all(isinstance(array, jax.Array) for array in kept.arrays)
    return {"result": result, "traces": program.traces, "on_device": on_device}


def _repeated(function: Callable[..., Any], kept: Kept, calls: int) -> np.ndarray:
    """Call a function and wait for its result, so many times; return the last one."""
    result = np.asarray(function(*kept.arrays))
    for _ in range(calls - 1):
        result = np.asarray(function(*kept.arrays))
    return result
