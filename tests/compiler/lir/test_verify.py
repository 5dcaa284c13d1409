"""The verifier: each rule, by a program that breaks it and nothing else."""

import dataclasses

import numpy as np
import pytest

from mlhood.compiler.lir.instructions import Compute
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.errors import CompilerError
from tests.compiler.lir.building import float_type, program_of

A = "alloc %a : float32[2, 3]"
FREE = "dealloc %a"
WRITE = "relu @out %a, @in %x"
RESULT = "copy @out %y, @in %x"
SIX = "tensorview %six : float32[6] = %a"


def test_a_sound_program_verifies():
    verify(program_of(A, WRITE, "relu @inout %a", SIX, "relu @inout %six", "elementadd @out %y, @in %a, @in %x", FREE))


def test_a_view_of_a_view_and_of_weights():
    declare = ("constant %c : float32[3] = [1.0, 2.0, 3.0]",)
    views = ["tensorview %b : float32[6] = %x", "tensorview %d : float32[3, 2] = %b", "tensorview %e : int32[3] = %c"]
    verify(program_of(*views, "tensorview %z : float32[6] = %y", "tanh @out %z, @in %b", declare=declare))


BROKEN = {
    "read before write": ([A, "relu @out %y, @in %a", FREE], 1, "read before it is written"),
    "read of an output": (["relu @inout %y"], 0, "read before it is written"),
    "use after free": ([A, WRITE, FREE, "relu @out %y, @in %a"], 3, "after its memory was deallocated"),
    "view after free": ([A, WRITE, SIX, FREE, "relu @inout %six", RESULT], 4, "after its memory was deallocated"),
    "freed twice": ([A, WRITE, FREE, FREE, RESULT], 3, "after its memory was deallocated"),
    "never freed": ([A, WRITE, RESULT], None, "never deallocated"),
    "a view is freed": ([A, SIX, "dealloc %six", RESULT], 2, "only what is allocated can be deallocated"),
    "a weight is freed": ([RESULT, "dealloc %x"], 1, "only what is allocated can be deallocated"),
    "an input is written": (["relu @inout %x", RESULT], 0, "the input %x is written"),
    "an input is written through a view": (
        ["tensorview %v : float32[6] = %x", "relu @inout %v", RESULT],
        1,
        "the input %x is written",
    ),
    "a constant is written": (["relu @out %c, @in %x", RESULT], 0, "the constant %c is written"),
    "a view is longer": (["tensorview %v : float32[7] = %x", RESULT], 0, "as many bytes"),
    "a view has longer elements": (["tensorview %v : float64[6] = %x", RESULT], 0, "as many bytes"),
    "copy of another type": ([A, WRITE, SIX, "copy @out %y, @in %six", FREE], 3, "another type"),
    "result of another type": ([A, WRITE, SIX, "relu @out %y, @in %six", FREE], 3, "another type"),
    "the type rule is violated": (["matmul @out %y, @in %x, @in %x"], 0, "matmul"),
    "attributes of a wrong type": (['softmax @out %y, @in %x {axes="a"}'], 0, "invalid attributes of the operator"),
    "too few inputs": (["elementadd @out %y, @in %x"], 0, "wrong number of inputs"),
    "too many results": ([A, "relu @out %y, @out %a, @in %x", FREE], 1, "another type"),
    "not elementwise in place": ([A, WRITE, "softmax @inout %a {axes=[1]}", RESULT, FREE], 2, "memory of an input"),
    "in place over a broadcast input": (
        [
            "alloc %b : float32[2, 1]",
            "call ReduceMax @out %b, @in %x {axes=[1], keep=true}",
            "tensorview %v : float32[1, 2] = %b",
            "alloc %square : float32[2, 2]",
            "elementadd @out %square, @in %b, @in %v",
            "elementadd @in %b, @inout %v",
            "dealloc %b",
            "dealloc %square",
            RESULT,
        ],
        5,
        "another type",
    ),
    "other positions in place": (
        [A, WRITE, SIX, "call Reshape @out %six, @in %a {shape=[6]}", FREE, RESULT],
        3,
        "memory of an input",
    ),
    "an output is not written": ([A, WRITE, FREE], None, "an output is never written"),
    "an unknown type": (["alloc %n : float32[-1]", "dealloc %n", RESULT], 0, "the type of a buffer is invalid"),
}


@pytest.mark.parametrize(("lines", "number", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_found_at_its_instruction(lines, number, message):
    declare = ("constant %c : float32[2, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]",)
    with pytest.raises(CompilerError) as caught:
        verify(program_of(*lines, declare=declare, check=False))
    where = "program 'test'" if number is None else f"instruction {number}: {lines[number]}"
    assert caught.value.parts["where"] == where
    assert message in str(caught.value)


def test_two_results_in_one_memory():
    declare = ("input %numbers : int64[3]",)
    lines = ["alloc %s : int64[2]", "alloc %t : int64[2]", "tensorview %v : int64[2] = %s"]
    lines += ["call TopK @out %s, @out %t, @in %numbers {k=2}", "dealloc %s", "dealloc %t"]
    verify(program_of(*lines, RESULT, declare=declare))
    shared = [line.replace("@out %t", "@out %v") for line in lines]
    with pytest.raises(CompilerError, match="two results are in the same memory"):
        verify(program_of(*shared, RESULT, declare=declare, check=False))


def test_an_alloc_of_a_weight_and_a_taken_name():
    program = program_of(RESULT)
    alloc = program_of(A, WRITE, FREE, RESULT).instructions[0]
    twice = program.copy()
    twice.instructions = [dataclasses.replace(alloc, buffer=program.weights["x"]), *program.instructions]
    with pytest.raises(CompilerError, match="a weight is allocated"):
        verify(twice)
    twice.instructions = [alloc, alloc, *program.instructions]
    with pytest.raises(CompilerError, match="must be unique"):
        verify(twice)
    twice.instructions = program_of(A, WRITE, FREE, RESULT).instructions[1:]
    with pytest.raises(CompilerError, match="before it is allocated"):
        verify(twice)


def test_an_operator_without_an_instruction_must_be_called():
    erf = next(function for function in FUNCTIONS if function.__name__ == "Erf")
    program = program_of(RESULT)
    x, y = program.weights["x"], program.weights["y"]
    program.instructions = [Compute(erf(), (y,), (x,), call=True)]
    verify(program)
    program.instructions = [Compute(erf(), (y,), (x,))]
    with pytest.raises(CompilerError, match="has no instruction"):
        verify(program)


def test_a_constant_without_its_array():
    program = Program("p")
    weight = program.declare_constant("c", np.zeros((2, 3), np.float32))
    program.weights["c"] = dataclasses.replace(weight, data=np.zeros(5, np.float32))
    with pytest.raises(CompilerError, match="not of the declared type"):
        verify(program)
    with pytest.raises(CompilerError, match="must be unique"):
        program.declare_input("c", float_type(2))
