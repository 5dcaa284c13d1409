"""Lowering: from a graph of the HIR to a program.

1. placeholder, constant, output      ->  input, constant, output
2. y = reshape(x)                     ->  tensorview y = x        reshape: see `instructions.VIEWS`
3. y = identity(x)                    ->  alloc y; copy @out y, @in x
4. y, ... = operator(x, ...)          ->  alloc y, ...; its instruction, or a `call` of it, @out y, ..., @in x, ...
5. output "name" = y                  ->  copy @out name, @in y   right after the instruction that writes y
6. after the last use of activation y ->  dealloc y

Nodes are lowered in topological order. A program with dynamic axes is optimised once, and given their lengths as often
as these change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import check_dims
from mlhood.compiler.hir.lengths import evaluate
from mlhood.compiler.hir.names import unique_name
from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import Shape
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.lir.instructions import (
    COPIES,
    OPCODES,
    VIEWS,
    Alloc,
    Buffer,
    Compute,
    Copy,
    Instruction,
    TensorView,
    Weight,
)
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.lir.program import Program, with_deallocs
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.errors import CompilerError


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


# -- programs with dynamic axes


class DynamicProgram:
    """The optimised program of a graph with dynamic axes.

    Args:
        graph: A verified graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.program = optimize(lower(graph))
        self._latest: list[Instruction] = [*self.program.instructions]
        self._buffers: dict[Buffer, Buffer] = {}
        weights = self.program.weights.items()
        self._weights = {name: w for name, w in weights if any(isinstance(axis, str) for axis in w.type.shape)}
        self._dynamic = [
            (i, instruction)
            for i, instruction in enumerate(self.program.instructions)
            if any(isinstance(axis, str) for buffer in instruction.buffers for axis in buffer.type.shape)
        ]

    def with_lengths(self, dims: Mapping[str, int]) -> Program | None:
        """Return the program for the lengths of the dynamic axes.

        Instructions on which they have no influence are the same objects as in the program that was returned before.

        Args:
            dims: The lengths by name.

        Returns:
            None if an operator rejects the lengths, or lengths depend on elements.
        """
        try:
            return self._with_lengths(dims)
        except CompilerError:
            return None

    def _with_lengths(self, dims: Mapping[str, int]) -> Program:
        shapes: dict[Shape, Shape] = {}

        def known(buffer: Buffer) -> Buffer:
            shape = buffer.type.shape
            if shape not in shapes:
                shapes[shape] = tuple(int(evaluate(axis, dims)) for axis in shape)
            latest = self._buffers.get(buffer, buffer)
            if latest.type.shape != shapes[shape]:
                latest = self._buffers[buffer] = replace(buffer, type=buffer.type.with_shape(shapes[shape]))
            return latest

        program = Program(self.program.name)
        program.weights = dict(self.program.weights)
        program.weights |= {name: _weight(known(weight)) for name, weight in self._weights.items()}
        program.outputs = {name: program.weights[weight.name] for name, weight in self.program.outputs.items()}
        for i, instruction in self._dynamic:
            buffers = tuple(map(known, instruction.buffers))
            depends = isinstance(instruction, Compute) and isinstance(instruction.operator, Dynamic)
            if depends or any(a is not b for a, b in zip(buffers, self._latest[i].buffers, strict=True)):
                new = _specialized(instruction, dict(zip(instruction.buffers, buffers, strict=True)))
                self._latest[i] = self._latest[i] if new == self._latest[i] else new
        program.instructions = [*self._latest]
        return program


def _weight(buffer: Buffer) -> Weight:
    if not isinstance(buffer, Weight):
        raise CompilerError("not a weight", got=buffer.name)
    return buffer


def _specialized(instruction: Instruction, known: Mapping[Buffer, Buffer]) -> Instruction:
    """Return an instruction on buffers of known lengths.

    Raises:
        CompilerError: These do not fit together.
    """
    if isinstance(instruction, TensorView):
        view = TensorView(known[instruction.buffer], known[instruction.source])
        if view.buffer.bytes != view.source.bytes:
            raise CompilerError("a view of another size", where=view.buffer.name)
        return view
    new = instruction.renamed(known.__getitem__)
    if not isinstance(new, Compute):
        return new
    types = [buffer and buffer.type for buffer in new.inputs]
    operator, count = new.operator.specialized([type and type.shape for type in types])
    inferred = infer_output_types(operator, types[:count], new.results[0].name)
    if [type.shape for type in inferred] != [buffer.type.shape for buffer in new.results]:
        raise CompilerError("results of other lengths", where=new.results[0].name)
    return replace(new, operator=operator, inputs=new.inputs[:count])
