"""The target "nmp": a graph cut over the CPU and the simulated neural processor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.interpreter import Observer
from mlhood.compiler.backends.nmp.codegen.generate import generate
from mlhood.compiler.backends.nmp.machine import Machine, default_machine
from mlhood.compiler.backends.nmp.partition import CPU, NMP, Partition, partition
from mlhood.compiler.backends.nmp.program import NmpProgram
from mlhood.compiler.backends.nmp.simulator import simulate
from mlhood.compiler.backends.nmp.stages import unsupported
from mlhood.compiler.hir.graph import Graph, subgraph
from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.hir.verify import verify
from mlhood.errors import CompilerError

_MAX_PLANS = 8


class Simulated:
    """A graph of integers, prepared for the neural processor.

    Args:
        graph: The graph, whose nodes the processor supports.
        machine: The machine.

    Attributes:
        program: What it executes.
    """

    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph = graph
        self.program = generate(graph, machine)

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once; `observe` is called with its outputs, as no other value leaves the processor."""
        outputs = simulate(self.program, inputs)
        for name, array in outputs.items():
            if observe is not None:
                observe(self.graph.outputs[name], array)
        return outputs


@dataclass(frozen=True)
class Plan:
    """A graph cut for some lengths of its axes.

    Args:
        graph: The graph with these lengths.
        partition: Which node runs where.
        parts: What runs each part, in order: the device, and a runner with its graph.
    """

    graph: Graph
    partition: Partition
    parts: tuple[tuple[str, Any], ...]

    @property
    def programs(self) -> list[NmpProgram]:
        """The programs of the neural processor."""
        return [runner.program for device, runner in self.parts if device == NMP]


class Heterogeneous:
    """A graph, prepared for the CPU and the neural processor together; its results are the interpreter's.

    Args:
        graph: A graph; it is verified, and must not be modified afterwards.
        machine: The neural processor; the course's by default.

    Raises:
        CompilerError: The graph is invalid, or the neural processor can run no node of it.
    """

    def __init__(self, graph: Graph, machine: Machine | None = None) -> None:
        verify(graph)
        self.graph = graph
        self.machine = machine or default_machine()
        self._types = {name: placeholder.type for name, placeholder in graph.placeholders.items()}
        self._plans: dict[tuple[tuple[str, int], ...], Plan] = {}
        _check_supported(self.graph.copy(dict.fromkeys(self.axes(), 1)))
        if not self.axes():
            self.plan({})  # what can be compiled before the first run is

    def axes(self) -> list[str]:
        """Return the names of the inputs' dynamic axes."""
        return [axis for type in self._types.values() for axis in type.shape if isinstance(axis, str)]

    def plan(self, dims: Mapping[str, int]) -> Plan:
        """Return the plan for these lengths of the dynamic axes."""
        key = tuple(sorted(dims.items()))
        if key not in self._plans:
            while len(self._plans) >= _MAX_PLANS:
                self._plans.pop(next(iter(self._plans)))
            graph = self.graph.copy(dims)
            cut = partition(graph, self.machine)
            parts = tuple((device, self._prepared(device, _part(graph, nodes))) for device, nodes in cut.segments())
            self._plans[key] = Plan(graph, cut, parts)
        return self._plans[key]

    def _prepared(self, device: str, part: Graph) -> Cpu | Simulated:
        return Cpu(part) if device == CPU else Simulated(part, self.machine)

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once; see `Interpreter.run`."""
        arrays: dict[str, np.ndarray] = dict(bind_inputs(self._types, inputs, f"graph {self.graph.name!r}"))
        dims: dict[str, int] = {}
        for name, type in self._types.items():
            lengths = zip(type.shape, arrays[name].shape, strict=True)
            dims |= {axis: length for axis, length in lengths if isinstance(axis, str)}
        plan = self.plan(dims)
        constants = {value.name: value.data for value in plan.graph.constants.values()}
        for _, runner in plan.parts:
            given = {
                name: np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape)
                for name in runner.graph.placeholders
            }
            arrays |= runner.run(given, None if observe is None else self._observer(observe))
        return {name: (arrays | constants)[value.name] for name, value in plan.graph.outputs.items()}

    def _observer(self, observe: Observer) -> Observer:
        """Return an observer that is called with the values of the whole graph."""
        by_name = {value.name: value for value in self.graph.values()}

        def seen(value: Value, array: np.ndarray) -> None:
            if value.name in by_name:
                observe(by_name[value.name], array)

        return seen


def _part(graph: Graph, nodes: list[Node]) -> Graph:
    """Return some nodes as a graph, whose outputs are what others read, or the whole graph gives."""
    inside = set(nodes)
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if graph.is_output(value) or any(user not in inside for user in value.users)
    ]
    return subgraph(graph, nodes, outputs)


def _check_supported(graph: Graph) -> None:
    """Check that the neural processor can run a node."""
    reasons = {node.name: unsupported(node) for node in graph.topological()}
    if reasons and None not in reasons.values():
        name, reason = next(iter(reasons.items()))
        raise CompilerError(
            "the neural processor can run no node of the graph",
            where=f"graph {graph.name!r}",
            expected="convolutions, dense layers, pooling or sums of int8 or int16",
            got=f"{len(reasons)} nodes; {name}: {reason}",
            todo="quantise it: compile(model, 'nmp', Recipe('power_of_two')), or --quantize power_of_two",
        )
