"""Programs for the tests of the LIR, and what every program must do."""

from collections.abc import Callable

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.lir.execute import Executor
from mlhood.compiler.lir.instructions import Compute
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.parse import parse
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.text import instruction_text
from mlhood.compiler.lir.verify import verify
from tests.compiler.passes.building import DYNAMIC_SIZES, built, numbers_for


def program_of(*lines: str, declare: tuple[str, ...] = (), check: bool = True) -> Program:
    """Return the program with input %x, output %y, both float32[2, 3], further declarations, and these instructions."""
    weights = ("input %x : float32[2, 3]", *declare, "output %y : float32[2, 3]")
    program = parse("\n".join(['function "test"', "declare {", *weights, "}", "program {", *lines, "}"]))
    if check:
        verify(program)
    return program


def lowered(make: Callable) -> Program:
    """Return the program of the graph that a function builds, with the lengths of `DYNAMIC_SIZES` for its axes."""
    return lower_static(built(make))


def lower_static(graph: Graph, **sizes: int) -> Program:
    axes = {axis for value in graph.placeholders.values() for axis in value.type.shape if isinstance(axis, str)}
    program = lower(graph, {axis: {**DYNAMIC_SIZES, **sizes}.get(axis, 3) for axis in axes})
    verify(program)
    return program


def opcodes(program: Program) -> list[str]:
    """Return the first word of each instruction."""
    return [instruction_text(instruction).split()[0] for instruction in program.instructions]


def computed(program: Program) -> list[str]:
    """Return the names of the operators, in order."""
    return [each.operator.name for each in program.instructions if isinstance(each, Compute)]


def inputs_for(program: Program) -> dict[str, np.ndarray]:
    return {name: numbers_for(weight.type) for name, weight in program.weights.items() if weight.kind == "input"}


def check_same_bits(actual, expected) -> None:
    """Check that two runs gave the same outputs, bit for bit."""
    assert list(actual) == list(expected)
    for name, array in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (array.dtype, array.shape)
        assert actual[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


def check_against_graph(program: Program, graph: Graph, inputs=None) -> None:
    """Check that a program computes what its graph does in the interpreter, bit for bit."""
    inputs = inputs_for(program) if inputs is None else inputs
    check_same_bits(Executor(program).run(inputs), ContiguousInterpreter(graph).run(inputs))


class ContiguousInterpreter(Interpreter):
    """The interpreter with every result in C order, as in a buffer: the order of a sum may depend on the layout."""

    def implementation(self, node):
        compute = super().implementation(node)
        return lambda *arrays: tuple(np.array(array, order="C") for array in compute(*arrays))


def float_type(*shape: int) -> TensorType:
    return TensorType("float32", shape)
