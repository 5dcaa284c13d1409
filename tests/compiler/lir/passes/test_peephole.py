"""Peephole optimisation."""

from dataclasses import replace

import pytest

from mlhood.compiler.lir.instructions import Compute
from mlhood.compiler.operators.movement import Concat, Transpose
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.shape import Flatten, Reshape
from tests.compiler.lir.building import lowered, opcodes, program_of
from tests.compiler.lir.passes.applying import apply, body
from tests.compiler.passes.building import Tanh

PASS = "simplify_instructions"
POOL = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)


def test_a_view_of_a_view():
    lines = [
        "tensorview %a : float32[6] = %x",
        "tensorview %b : float32[3, 2] = %a",
        "tensorview %c : float32[1, 6] = %b",
    ]
    rest = ["call ReduceMax @out %s, @in %c {axes=[0, 1], keep=false}", "dealloc %s", "copy @out %y, @in %x"]
    got = body(apply(program_of(*lines, "alloc %s : float32[]", *rest), PASS))
    assert got[:3] == [line.rpartition("=")[0] + "= %x" for line in lines]


def test_a_view_of_the_same_type_is_its_source():
    program = lowered(lambda b: b(Tanh(), b(Reshape((2, 3)), b(Flatten(), b.x(2, 3, 1)))))
    assert opcodes(apply(program, PASS)) == ["tensorview", "tensorview", "alloc", "tanh", "copy", "dealloc"]
    same = lowered(lambda b: b(Tanh(), b(Reshape((2, 3)), b(Reshape((6,)), b.x(2, 3)))))
    assert body(apply(same, PASS))[2] == "tanh @out %tanh, @in %x"


def test_indices_that_nothing_reads_are_not_computed():
    program = lowered(lambda b: b.graph.add(POOL, b.x(1, 1, 2, 2)).outputs[0])
    pool = next(line for line in body(apply(program, PASS)) if line.startswith("maxpool"))
    assert pool == "maxpool @out %maxpool, @in %x {kernel=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1]}"
    read = lowered(lambda b: b.graph.add(POOL, b.x(1, 1, 2, 2)).outputs[1])
    assert body(apply(read, PASS)) == body(read)


def test_a_concatenation_of_one():
    assert opcodes(apply(lowered(lambda b: b(Concat(0), b.x(2))), PASS)) == ["alloc", "copy", "copy", "dealloc"]
    two = lowered(lambda b: [x := b.x(2), b(Concat(0), x, x)][1])
    assert body(apply(two, PASS)) == body(two)


@pytest.mark.parametrize(
    ("shape", "permutation", "is_view"),
    [
        ((2, 3, 1, 1), (0, 2, 3, 1), True),
        ((2, 3), (0, 1), True),
        (("n", 1), (1, 0), True),
        (("n", 2), (1, 0), False),
        ((2, 1, 2), (2, 1, 0), False),
    ],
)
def test_a_transpose_that_keeps_the_order_in_memory_is_a_view(shape, permutation, is_view):
    program = lowered(lambda b: b(Transpose(permutation), b.x(*shape)))
    assert ("transpose" not in opcodes(apply(program, PASS))) == is_view


def test_calls_stay():
    program = lowered(lambda b: b(Transpose((0, 1)), b.x(2, 3)))
    program.instructions = [replace(i, call=True) if isinstance(i, Compute) else i for i in program.instructions]
    assert body(apply(program, PASS)) == body(program)
