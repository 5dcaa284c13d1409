"""Lowering: from a graph of the HIR to a program.

1. placeholder, constant, output      ->  input, constant, output
2. y = reshape(x)                     ->  tensorview y = x        reshape: see `opcodes.VIEWS`
3. y = identity(x)                    ->  alloc y; copy @out y, @in x
4. y, ... = operator(x, ...)          ->  alloc y, ...; its instruction, or a `call` of it, @out y, ..., @in x, ...
5. output "name" = y                  ->  copy @out name, @in y   right after the instruction that writes y
6. after the last use of activation y ->  dealloc y

Nodes are lowered in topological order.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import check_dims
from mlhood.compiler.hir.names import unique_name
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.lir.instructions import Alloc, Buffer, Compute, Copy, TensorView, Weight
from mlhood.compiler.lir.opcodes import COPIES, OPCODES, VIEWS
from mlhood.compiler.lir.program import Program, with_deallocs
from mlhood.compiler.operators.dynamic import Dynamic


def lower(graph: Graph, dims: Mapping[str, int] | None = None) -> Program:
    """Return the program that computes a graph.

    Args:
        graph: A verified graph; not modified.
        dims: Lengths of dynamic axes by name. A program with dynamic axes can be printed and optimised, but neither
            executed nor planned.

    Raises:
        CompilerError: A length is given for an axis that the graph does not have, or is invalid for an operator.
    """
    return lower_with_buffers(graph, dims)[0]


def lower_with_buffers(graph: Graph, dims: Mapping[str, int] | None = None) -> tuple[Program, dict[str, Buffer]]:
    """Return the program that computes a graph, and the buffer of each of the graph's values by name; see `lower`."""
    if dims:
        check_dims({name: value.type for name, value in graph.placeholders.items()}, dims)
        graph = graph.copy(dims)
    lowering = _Lowering(graph)
    program = lowering.run()
    return program, {value.name: buffer for value, buffer in lowering.buffers.items()}


class _Lowering:
    """One lowering: the program so far, and the buffer of each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.program = Program(graph.name)
        self.buffers: dict[Value, Buffer] = {}
        self.names = {value.name for value in graph.values() if value.producer is None}
        self.targets: dict[Value, list[Weight]] = {}  # the outputs that a value is copied to

    def run(self) -> Program:
        for placeholder in self.graph.placeholders.values():  # rule 1
            self.buffers[placeholder] = self.program.declare_input(placeholder.name, placeholder.type)
        for constant in self.graph.constants.values():
            quantization = constant.type.quantization
            self.buffers[constant] = self.program.declare_constant(constant.name, constant.data, quantization)
        for name, value in self.graph.outputs.items():
            output = self.program.declare_output(unique_name(name, self.names), value.type, name)
            self.targets.setdefault(value, []).append(output)
        for value in self.targets:
            if value.producer is None:
                self._copy_to_outputs(value)
        for node in self.graph.topological():
            self._lower(node)
        self.program.instructions = with_deallocs(self.program.instructions, self.program.memory())  # rule 6
        return self.program

    def _lower(self, node: Node) -> None:
        add = self.program.instructions.append
        inputs = tuple(None if value is None else self.buffers[value] for value in node.inputs)
        results = tuple(Buffer(unique_name(value.name, self.names), value.type) for value in node.outputs)
        source = inputs[0] if inputs else None
        operator = node.operator.operator if isinstance(node.operator, Dynamic) else node.operator
        if isinstance(operator, VIEWS) and source is not None:  # rule 2
            add(TensorView(results[0], source))
        else:
            self.program.instructions += [Alloc(buffer) for buffer in results]
            if isinstance(node.operator, COPIES) and source is not None:  # rule 3
                add(Copy(results[0], source))
            else:  # rule 4
                add(Compute(node.operator, results, inputs, node.operator.name not in OPCODES))
        for value, buffer in zip(node.outputs, results, strict=True):
            self.buffers[value] = buffer
            self._copy_to_outputs(value)

    def _copy_to_outputs(self, value: Value) -> None:
        for output in self.targets.get(value, ()):  # rule 5
            self.program.instructions.append(Copy(output, self.buffers[value]))
