"""Copy elimination."""

import pytest

from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.shape import Flatten
from tests.compiler.lir.building import lowered, opcodes, program_of
from tests.compiler.lir.passes.applying import apply, body
from tests.compiler.passes.building import Tanh

PASS = "eliminate_copies"
A, B = "alloc %a : float32[2, 3]", "alloc %b : float32[2, 3]"
FREE = ["dealloc %a", "dealloc %b"]


def test_a_producer_writes_the_output():
    assert body(apply(lowered(lambda b: b(Tanh(), b.x(2, 3))), PASS)) == ["tanh @out %y, @in %x"]


def test_a_copy_of_an_input_is_read_instead():
    program = program_of(A, "copy @out %a, @in %x", "relu @out %y, @in %a", "dealloc %a")
    assert body(apply(program, PASS)) == ["relu @out %y, @in %x"]


def test_the_source_lives_as_long_as_its_copy_did():
    lines = [A, "tanh @out %a, @in %x", B, "copy @out %b, @in %a", FREE[0], "relu @out %y, @in %b", FREE[1]]
    assert body(apply(program_of(*lines), PASS)) == [*lines[:2], "relu @out %y, @in %a", FREE[0]]


def test_an_output_that_is_reshaped_is_viewed():
    program = lowered(lambda b: b(Flatten(), b(Relu(), b.x(2, 3, 1))))
    assert body(apply(program, PASS)) == [
        "tensorview %relu : float32[2, 3, 1] = %y",
        "relu @out %relu, @in %x",
        "tensorview %flatten : float32[2, 3] = %relu",
    ]


def test_the_second_output_of_one_value_stays_a_copy():
    program = lowered(lambda b: [y := b(Tanh(), b.x(2)), (y, y)][1])
    assert body(apply(program, PASS)) == ["tanh @out %y, @in %x", "copy @out %y1, @in %y"]


KEPT = {
    "an input that is an output": ["copy @out %y, @in %x"],
    "the source is written afterwards": [
        *(A, "tanh @out %a, @in %x", "copy @out %y, @in %a", "relu @inout %a", "elementadd @in %a, @inout %y", FREE[0])
    ],
    "the copy is written afterwards": [
        *(A, "copy @out %a, @in %x", "relu @inout %a", "elementadd @out %y, @in %a, @in %x", FREE[0])
    ],
    "the output is written before": [
        *("relu @out %y, @in %x", A, "tanh @out %a, @in %y", "copy @out %y, @in %a", FREE[0])
    ],
    "both are written afterwards": [
        *(A, "tanh @out %a, @in %x", B, "copy @out %b, @in %a", "relu @inout %b", "elementadd @out %y, @in %a, @in %b"),
        *FREE,
    ],
}


@pytest.mark.parametrize("lines", KEPT.values(), ids=KEPT)
def test_a_copy_stays_where_both_are_needed(lines):
    assert body(apply(program_of(*lines), PASS)) == lines


def test_a_copy_onto_itself():
    program = program_of("relu @out %y, @in %x", "copy @out %y, @in %y")
    assert opcodes(apply(program, PASS)) == ["relu"]
