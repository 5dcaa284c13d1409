"""Programs as text: what is written is read again, and what is broken is refused in words."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing
from mlhood.compiler.backends.nmp.isa.assembly import (
    INSTRUCTIONS,
    assemble,
    disassemble,
    instruction_text,
    parse_instruction,
)
from mlhood.compiler.backends.nmp.isa.computations import LANES, POOLS
from mlhood.compiler.backends.nmp.isa.instruction import Units
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.errors import CompilerError

MACHINE = default_machine()
NUMBERS = st.sets(st.integers(0, 63), min_size=1).map(lambda numbers: tuple(sorted(numbers)))
KINDS = {"Units": st.builds(Units, NUMBERS, NUMBERS), "bool": st.booleans(), "int": st.integers(0, 2**40)}
INSTRUCTION = st.sampled_from([*INSTRUCTIONS.values()]).flatmap(
    lambda cls: st.builds(
        cls, **{f.name: KINDS[f.type] if f.type in KINDS else st.sampled_from(LANES + POOLS) for f in fields(cls)}
    )
)


@settings(max_examples=200)
@given(INSTRUCTION)
def test_text_is_read_again(instruction):
    assert parse_instruction(instruction_text(instruction, MACHINE), MACHINE) == instruction


def test_a_whole_program_is_read_again():
    weights = np.arange(54, dtype=np.int8).reshape(3, 2, 3, 3)
    program = convolution_program(convolution(2, 5, 5, 3), Slicing(2, 3, 2, 2), MACHINE, weights)
    again = assemble(disassemble(program))
    assert again == program
    np.testing.assert_array_equal(again.tensors["weights"].data, program.tensors["weights"].data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jump t0.0", "unknown instruction"),
        ("wait", "an operand is missing"),
        ("wait t0", "not enough values"),
        ("wait t0.0 outstanding=many", "invalid literal"),
        ("wait t0.0 colour=1", "unknown or repeated operand"),
        ("load t0.0 memory=x dram=0 run=1", "not enough values"),
        ('.tensor {"name": "x"}', "shape"),
    ],
)
def test_errors_name_the_line(text, message):
    with pytest.raises(CompilerError, match=message) as error:
        assemble(f'.layer ["one", ""]\n{text}\n')
    assert "line 2" in str(error.value)
