"""Buffer sharing: elementwise instructions in place."""

import numpy as np
import pytest

from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.operators.arithmetic import Add, Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.integer_elementwise import Lookup, QuantizedAdd
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.operators.shape import Reshape
from tests.compiler.lir.building import lowered, program_of
from tests.compiler.lir.passes.applying import apply, body
from tests.compiler.passes.building import Exp, Tanh

PASS = "share_buffers"
ReduceMax = next(operator for operator in REDUCTIONS if operator.__name__ == "ReduceMax")


def allocs(make) -> int:
    return len(apply(lowered(make), PASS).lifetimes())


def test_a_chain_works_in_one_buffer():
    program = apply(lowered(lambda b: b(Relu(), b(Tanh(), b(Exp(), b.x(2))))), PASS)
    assert body(program) == [
        "alloc %exp : float32[2]",
        "call Exp @out %exp, @in %x",
        "tanh @inout %exp",
        "relu @inout %exp",
        "copy @out %y, @in %exp",
        "dealloc %exp",
    ]


def test_the_second_input_is_taken_over_where_the_first_is_still_used():
    program = apply(
        lowered(lambda b: [a := b(Exp(), b.x(2)), b(Add(), b(Sub(), a, b(Tanh(), b.x(2, name="z"))), a)][1]), PASS
    )
    assert "elementsub @in %exp, @inout %tanh" in body(program)
    assert "elementadd @inout %tanh, @in %exp" in body(program)


def test_an_output_takes_over_the_memory_of_its_input():
    lines = ["alloc %a : float32[2, 3]", "tanh @out %a, @in %x", "relu @out %y, @in %a", "dealloc %a"]
    assert body(apply(program_of(*lines), PASS)) == ["tanh @out %y, @in %x", "relu @inout %y"]


def test_another_type_of_the_same_size_is_a_view():
    program = apply(lowered(lambda b: b(Cast("int32"), b(Relu(), b.x(2)))), PASS)
    assert "tensorview %cast : int32[2] = %relu" in body(program)
    assert 'convertto @out %cast, @in %relu {element="int32"}' in body(program)
    assert len(program.lifetimes()) == 1


def test_quantised_sums_and_tables_work_in_place():
    def make(b):
        first, second = Quantization((0.5,), (0,)), Quantization((0.25,), (3,))
        left, right = (b(Quantize("int8", first), b.x(4, name=name)) for name in "xz")
        total = b(QuantizedAdd(first), left, right)
        return b(Dequantize(), b(Lookup(("Tanh",), second), total))

    program = apply(lowered(make), PASS)
    assert any(line.startswith("quantizedadd @inout %quantize, @in %quantize_1 {") for line in body(program))
    assert "tensorview %lookup : int8[4] quantized(scale=[0.25], offset=[3]) = %quantize" in body(program)
    assert [lifetime.bytes for lifetime in program.lifetimes()] == [4, 4, 16]


def test_a_reshaped_input():
    program = apply(lowered(lambda b: b(Relu(), b(Reshape((6,)), b(Tanh(), b.x(2, 3))))), PASS)
    assert "relu @inout %reshape" in body(program)


SEPARATE = {
    "used again": (lambda b: [a := b(Exp(), b.x(2)), (b(Tanh(), a), b(Relu(), a))][1], 2),
    "broadcast": (lambda b: b(Add(), b(Exp(), b.x(2, 1)), b.x(1, 3, name="z")), 2),
    "longer elements": (lambda b: b(Cast("float64"), b(Exp(), b.x(2))), 2),
    "an input": (lambda b: b(Relu(), b.x(2)), 1),
    "a constant": (lambda b: b(Relu(), b.constant(np.ones(2, np.float32))), 1),
    "not elementwise": (lambda b: b(Transpose((1, 0)), b(Exp(), b.x(3, 3))), 2),
    "read in another shape too": (
        lambda b: [a := b(Exp(), b.x(3, 1)), b(Add(), a, b(Reshape((1, 3)), a))][1],
        2,
    ),
}


@pytest.mark.parametrize(("make", "count"), SEPARATE.values(), ids=SEPARATE)
def test_memory_is_not_shared(make, count):
    assert allocs(make) == count


def test_memory_that_is_freed_later_is_shared_from_its_last_use():
    lines = ["alloc %a : float32[2, 3]", "tanh @out %a, @in %x", "alloc %b : float32[2, 3]", "relu @out %b, @in %a"]
    lines += ["elementadd @out %y, @in %b, @in %x", "dealloc %b", "dealloc %a"]
    got = body(apply(program_of(*lines), PASS))
    assert got == ["tanh @out %y, @in %x", "relu @inout %y", "elementadd @inout %y, @in %x"]
