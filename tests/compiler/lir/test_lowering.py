"""Lowering: the instructions of each kind of node, lifetimes, and static axes."""

import numpy as np
import pytest

from mlhood.compiler.hir.text import to_text as graph_text
from mlhood.compiler.lir.instructions import OPCODES, OPERATOR_OF
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.operators import OPERATORS
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.shape import Flatten, Reshape
from mlhood.errors import CompilerError
from tests.compiler.lir.building import check_against_graph, lowered, opcodes
from tests.compiler.passes.building import Exp, Tanh, built


def body(program) -> list[str]:
    return [line.strip() for line in to_text(program).partition("program {\n")[2].splitlines()[:-1]]


def test_memory_is_allocated_before_the_first_write_and_freed_after_the_last_use():
    program = lowered(lambda b: b(Add(), b(Relu(), b(Tanh(), b.x("n", 2))), b.graph.value("x")))
    assert body(program) == [
        "alloc %tanh : float32[3, 2]",
        "tanh @out %tanh, @in %x",
        "alloc %relu : float32[3, 2]",
        "relu @out %relu, @in %tanh",
        "dealloc %tanh",
        "alloc %add : float32[3, 2]",
        "elementadd @out %add, @in %relu, @in %x",
        "dealloc %relu",
        "copy @out %y, @in %add",
        "dealloc %add",
    ]


def test_a_reshape_is_a_view_that_keeps_its_memory_alive():
    def make(b):
        x = b(Relu(), b.x(2, 3, 1))
        return b(Tanh(), b(Reshape((-1,)), b(Flatten(), x)))

    program = lowered(make)
    assert opcodes(program) == [
        *("alloc", "relu", "tensorview", "tensorview", "alloc", "tanh", "dealloc"),
        "copy",
        "dealloc",
    ]
    assert body(program)[6] == "dealloc %relu"


def test_an_identity_is_a_copy():
    assert opcodes(lowered(lambda b: b(Identity(), b.x(2)))) == ["alloc", "copy", "copy", "dealloc"]


def test_operators_without_an_instruction_are_called():
    assert body(lowered(lambda b: b(Exp(), b.x(2, 3))))[1] == "call Exp @out %exp, @in %x"


def test_a_result_that_nothing_reads_has_memory_too():
    def make(b):
        pool = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
        return b.graph.add(pool, b.x("n", 2, 4, 4)).outputs[0]

    program = lowered(make)
    assert opcodes(program) == ["alloc", "alloc", "maxpool", "dealloc", "copy", "dealloc"]
    assert [(each.bytes, each.first, each.last) for each in program.lifetimes()] == [(96, 0, 5), (192, 1, 3)]


def test_outputs_that_are_weights_or_one_value_or_called_like_another_value():
    def make(b):
        x, c = b.x(2), b.constant(np.float32([1, 2]))
        relu = b(Relu(), x, name="y")
        b.graph.output(relu, "c")
        b.graph.output(x)
        return b(Tanh(), relu), relu, c

    program = lowered(make)
    assert {name: weight.name for name, weight in program.outputs.items()} == {
        "c": "c_1",
        "x": "x_1",
        "y": "y",
        "y1": "y1",
        "y2": "y2",
    }
    check_against_graph(program, built(make))


@pytest.mark.parametrize(
    ("dims", "message"), [({"m": 1}, "no such dynamic axis"), ({"n": -1}, "0 or more"), (3, "such as")]
)
def test_invalid_dims_raise(dims, message):
    with pytest.raises(CompilerError, match=message):
        lower(built(lambda b: b(Relu(), b.x("n", 2))), dims)


def test_the_graph_is_not_modified():
    graph = built(lambda b: b(Relu(), b.x("n", 2)))
    text = graph_text(graph)
    lower(graph, {"n": 2})
    assert graph_text(graph) == text


def test_each_instruction_has_one_operator_and_another_name_than_the_keywords():
    assert set(OPCODES) <= set(OPERATORS)
    assert len(OPERATOR_OF) == len(OPCODES)
    assert not {"alloc", "dealloc", "tensorview", "copy", "call"} & set(OPERATOR_OF)
