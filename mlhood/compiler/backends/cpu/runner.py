"""The target "cpu": plans for the shapes that are run, made when they are first seen."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.layouts import lanes_of
from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.cpu.machine import CpuSetup, WeightCache, shape
from mlhood.compiler.backends.cpu.native_program import NativeProgram
from mlhood.compiler.backends.interpreter import Observer
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.lir.instructions import Compute, TensorView
from mlhood.compiler.lir.lowering import DynamicProgram, lower_with_buffers
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.lir.program import Program
from mlhood.kernels import parallel
from mlhood.kernels.codegen.target import Target, host

_MAX_PLANS = 8
_SMALL = 4_000_000  # multiply-accumulates: with less, waking a second thread takes longer than it saves
Key = tuple[tuple[tuple[int, ...], ...], int, bool, bool]


class Cpu:
    """A graph, prepared for the CPU: one native call runs all of it.

    The number of threads is that of `mlhood.kernels.parallel.threads` when it is run; any number gives the same bits.

    Args:
        graph: A graph, lowered or not; it is verified, and must not be modified afterwards.
        target: The processor; the host by default.
    """

    def __init__(self, graph: Graph, target: Target | None = None) -> None:
        verify(graph)
        self.target = target or host()
        self.graph = lower_for_cpu(graph, self.target)
        self.weights = WeightCache()
        self._types = {name: placeholder.type for name, placeholder in self.graph.placeholders.items()}
        self._latest: NativeProgram | None = None
        self.plans: dict[Key, NativeProgram] = {}
        self.compilations = 0  # of programs so far; one with dynamic axes is compiled once, and planned for each length
        self._lock = threading.Lock()
        self._dynamic: DynamicProgram | None = None
        self._is_dynamic = any(isinstance(axis, str) for type in self._types.values() for axis in type.shape)
        if not self._is_dynamic:
            # what can be compiled before the first run is
            self.plan(tuple(tuple(int(axis) for axis in type.shape) for type in self._types.values()))

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once; see `Interpreter.run`.

        With `observe`, no two values of the lowered graph share memory.
        """
        with self._lock:
            program = self._latest
            if observe is not None or program is None or not self._accepts(program, inputs):
                inputs = self._bind(inputs)
                program = self.plan(tuple(array.shape for array in inputs.values()), observe is not None)
            if observe is not None:
                return self._run_observed(program, inputs, observe)
            self._latest = program
            outputs = program.run(inputs)
            if program.is_invalid:
                outputs = self.plan(tuple(array.shape for array in inputs.values()), exact=True).run(inputs)
            return outputs

    @property
    def activation_bytes(self) -> int | None:
        """Size of the arena of the program that ran last, with the workspaces of its kernels; None before a run."""
        return None if self._latest is None else self._latest.plan.bytes

    def kernels(self, inputs: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """Return the kernel and the layout of each value of the lowered graph, by name.

        The kernel is "view" for a value that is not computed, and "interpreter" for one without native code.

        Args:
            inputs: As for `run`; kernels depend on the shapes.
        """
        arrays = self._bind(inputs)
        program = self.plan(tuple(array.shape for array in arrays.values()), keep_values=True)
        found = {buffer: step.kernel for step in program.steps for buffer in step.instruction.writes}
        return {
            name: (found.get(buffer, "view"), "blocked" if self._is_blocked(shape(buffer), buffer.type) else "plain")
            for name, buffer in program.buffers.items()
        }

    def _is_blocked(self, sizes: tuple[int, ...], type: TensorType) -> bool:
        return len(sizes) == 5 and sizes[-1] == lanes_of(type, self.target.lanes)

    def _accepts(self, program: NativeProgram, inputs: Mapping[str, Any]) -> bool:
        """Return whether the program that ran last can run inputs as they are: arrays as the kernels read them."""
        if len(inputs) != len(program.inputs) or program.threads_wanted != parallel.threads():
            return False
        for name, dtype, lengths in program.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.shape != lengths or array.dtype != dtype:
                return False
            if not array.flags.c_contiguous:
                return False
        return True

    def _bind(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return checked inputs as contiguous arrays in the machine's byte order."""
        arrays = bind_inputs(self._types, inputs, f"graph {self.graph.name!r}")
        return {name: np.ascontiguousarray(a, a.dtype.newbyteorder("=")).reshape(a.shape) for name, a in arrays.items()}

    def plan(
        self, shapes: tuple[tuple[int, ...], ...], keep_values: bool = False, exact: bool = False
    ) -> NativeProgram:
        """Return the native program for the shapes of the inputs, in their order.

        Args:
            shapes: The shapes.
            keep_values: Whether no two values share memory.
            exact: See `CpuSetup`.
        """
        key = (shapes, parallel.threads(), keep_values, exact)
        if key not in self.plans:
            while len(self.plans) >= _MAX_PLANS:
                self.plans.pop(next(iter(self.plans)))
            self.plans[key] = self._compile(shapes, keep_values, exact)
        return self.plans[key]

    def _dims(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        dims: dict[str, int] = {}
        for type, lengths in zip(self._types.values(), shapes, strict=True):
            dims |= {axis: length for axis, length in zip(type.shape, lengths, strict=True) if isinstance(axis, str)}
        return dims

    def _compile(self, shapes: tuple[tuple[int, ...], ...], keep_values: bool, exact: bool) -> NativeProgram:
        dims = self._dims(shapes)
        program, buffers = self._with_lengths(dims) if self._is_dynamic and not keep_values else None, None
        if program is None:
            self.compilations += 1
            program, buffers = lower_with_buffers(self.graph, dims)
            program = program if keep_values else optimize(program)
        threads = parallel.threads() if _work(program) >= _SMALL else 1
        like = self._latest
        alike = like and (like.threads_wanted, like.machine.threads, like.machine.exact)
        if alike != (parallel.threads(), threads, exact):
            like = None
        machine = CpuSetup(self.target, threads, self.weights, exact)
        native = NativeProgram(program, machine, buffers if keep_values else None, like=like)
        native.threads_wanted = parallel.threads()
        return native

    def _with_lengths(self, dims: Mapping[str, int]) -> Program | None:
        """Return the program for the lengths of the dynamic axes; None if it has to be compiled for them alone."""
        if self._dynamic is None:
            self._dynamic = self._compiled()
        return self._dynamic.with_lengths(dims)

    def _compiled(self) -> DynamicProgram:
        self.compilations += 1
        return DynamicProgram(self.graph)

    def _run_observed(
        self, program: NativeProgram, inputs: Mapping[str, Any], observe: Observer
    ) -> dict[str, np.ndarray]:
        """Run the program step by step, and pass on each value right after it was computed."""
        arrays = program.bind(inputs)
        values = {buffer: self.graph.value(name) for name, buffer in program.buffers.items()}
        steps = {step.number: step for step in program.steps}
        for number, instruction in enumerate(program.program.instructions):
            if number in steps:
                program.run_step(steps[number], arrays)
            is_view = isinstance(instruction, TensorView)
            for buffer in instruction.buffers[:1] if is_view else instruction.writes:
                if buffer in values:
                    observe(values[buffer], program.array(buffer, arrays))
        return {name: arrays[weight] for name, weight in program.program.outputs.items()}


def _work(program: Program) -> int:
    """Return the multiply-accumulates of a program, and the elements that it writes."""
    total = 0
    for instruction in program.instructions:
        if isinstance(instruction, Compute):
            inputs = [() if buffer is None else shape(buffer) for buffer in instruction.inputs]
            results = [shape(buffer) for buffer in instruction.results]
            total += (instruction.operator.macs(inputs, results[0]) or 0) + sum(map(math.prod, results))
    return total
