"""Instructions as text and as binary code: what is written is read again, and what is broken is refused in words."""

from __future__ import annotations

import contextlib
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing
from mlhood.compiler.backends.nmp.isa.assembly import assemble, disassemble, instruction_text, parse_instruction
from mlhood.compiler.backends.nmp.isa.encoding import INSTRUCTIONS, decode, encode
from mlhood.compiler.backends.nmp.isa.instruction import Units
from mlhood.compiler.backends.nmp.isa.windowed import LANES, POOLS
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.backends.nmp.program import NmpLayer, NmpProgram
from mlhood.errors import CompilerError

MACHINE = default_machine()
UNITS = st.builds(
    lambda tiles, tilelets: Units(tuple(sorted(tiles)), tuple(sorted(tilelets))),
    st.sets(st.integers(0, 63), min_size=1),
    st.sets(st.integers(0, 63), min_size=1),
)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
ADDRESSES = ("memory", "x", "y", "w", "accumulators", "a", "b", "table")


def operand(name: str, kind: str):
    if kind == "Units":
        return UNITS
    if kind == "bool":
        return st.booleans()
    if kind == "str":
        return st.sampled_from(LANES if name == "lanes" else POOLS)
    if name in ADDRESSES:
        return st.integers(0, 2**20)
    return st.integers(0, 2**40) if name in ("dram", "multiplier") else NUMBERS


INSTRUCTION = st.sampled_from(INSTRUCTIONS).flatmap(
    lambda cls: st.builds(cls, **{each.name: operand(each.name, str(each.type)) for each in fields(cls)})
)


@settings(max_examples=200)
@given(INSTRUCTION)
def test_text_is_read_again(instruction):
    assert parse_instruction(instruction_text(instruction, MACHINE), MACHINE) == instruction


@settings(max_examples=100)
@given(st.lists(INSTRUCTION, min_size=1, max_size=5))
def test_binary_code_is_read_again(instructions):
    program = NmpProgram("random", MACHINE, {}, tuple(instructions), (NmpLayer("all", 0, len(instructions)),))
    assert decode(encode(program)) == program


@pytest.fixture(scope="module")
def program():
    layer = convolution(2, 5, 5, 3)
    weights = np.arange(54, dtype=np.int8).reshape(3, 2, 3, 3)
    return convolution_program(layer, Slicing(2, 3, 2, 2), MACHINE, weights)


def test_a_whole_program_is_read_again(program):
    for again in (assemble(disassemble(program)), decode(encode(program))):
        assert again == program
        np.testing.assert_array_equal(again.tensors["weights"].data, program.tensors["weights"].data)


def test_broken_binary_code_is_refused_and_never_crashes(program):
    code, rng = bytearray(encode(program)), np.random.default_rng(0)
    for _ in range(400):
        broken = bytearray(code)
        for at in rng.integers(0, len(code), rng.integers(1, 4)):
            broken[int(at)] = int(rng.integers(0, 256))
        if rng.random() < 0.3:
            del broken[int(rng.integers(0, len(code))) :]
        with contextlib.suppress(CompilerError):  # any other exception fails the test
            decode(bytes(broken))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jump t0.0", "unknown instruction"),
        ("wait", "an operand is missing"),
        ("wait t0", "unknown or repeated|invalid tilelets"),
        ("wait t0.0 outstanding=many", "invalid line"),
        ("wait t0.0 colour=1", "unknown or repeated operand"),
        ("load t0.0 memory=x dram=0 run=1", "invalid"),
        ("load t0.0 memory=b0+0x9000 dram=0 run=1", "invalid address"),
        ('.tensor "x" input int8[2', "invalid tensor"),
        ('.tensor "x" constant int8[2] at 0 = AA==', "another size"),
    ],
)
def test_errors_name_the_line(text, message):
    with pytest.raises(CompilerError, match=message) as error:
        assemble(f'.layer "one"\n{text} ; a comment\n')
    assert "line 2" in str(error.value)
