"""Programs with dynamic axes: optimised once, and given their lengths as often as these change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.lengths import evaluate
from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import Dim, Shape
from mlhood.compiler.lir.instructions import Buffer, Compute, Instruction, TensorView, Weight
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.lir.program import Program
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.errors import CompilerError


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
                shapes[shape] = tuple(_length(axis, dims) for axis in shape)
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


def _length(axis: Dim, dims: Mapping[str, int]) -> int:
    return int(evaluate(axis, dims))


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
