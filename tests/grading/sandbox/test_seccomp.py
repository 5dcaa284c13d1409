"""The seccomp filter, executed by an interpreter of the few BPF instructions that it uses."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from mlhood.grading.sandbox import seccomp

I386 = 0x40000003


def result(program: bytes, processor: int, number: int) -> str:
    """The result of the filter for a call."""
    data = {seccomp.NUMBER: number, seccomp.PROCESSOR: processor}
    instructions = list(struct.iter_unpack("=HBBI", program))
    pc = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[pc]
        if code == seccomp.RETURN:
            return {seccomp.ALLOW: "allowed", 0x50000 | errno.ENOSYS: "not implemented"}[value]
        if code == seccomp.LOAD:
            accumulator, pc = data[value], pc + 1
        else:
            true = accumulator == value if code == seccomp.EQUAL else accumulator >= value
            pc += 1 + (if_true if true else if_false)


@pytest.mark.parametrize(("machine", "processor"), seccomp.PROCESSORS.items())
def test_exactly_the_listed_calls_are_refused(machine, processor):
    program = seccomp.program(machine)
    column = list(seccomp.PROCESSORS).index(machine)
    listed = {numbers[column] for numbers in seccomp.REFUSED.values()}
    assert len(listed) == len(seccomp.REFUSED)
    assert {number for number in range(600) if result(program, processor, number) == "not implemented"} == listed


def test_the_same_calls_under_other_numbers_are_refused_too():
    program = seccomp.program("x86_64")
    assert result(program, I386, 0) == "not implemented"
    assert result(program, seccomp.PROCESSORS["x86_64"], seccomp.FIRST_OF_X32 + 319) == "not implemented"


def test_an_unsupported_processor_has_no_filter(monkeypatch):
    assert seccomp.program("riscv64") == b""
    monkeypatch.setattr(seccomp, "program", lambda: b"")
    with seccomp.opened() as descriptors:
        assert descriptors == ()


def test_the_descriptor_holds_the_filter_and_is_closed():
    with seccomp.opened() as descriptors:
        for descriptor in descriptors:
            assert os.read(descriptor, 1 << 16) == seccomp.program()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
