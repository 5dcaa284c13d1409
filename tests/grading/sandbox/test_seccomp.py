"""The filter of system calls, run by hand: an interpreter of the few instructions that it is made of."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from mlhood.grading.sandbox import seccomp

I386 = 0x40000003


def answer(program: bytes, processor: int, number: int) -> str:
    """What the kernel would do with a call."""
    data = {seccomp.NUMBER: number, seccomp.PROCESSOR: processor}
    lines = list(struct.iter_unpack("=HBBI", program))
    at = loaded = 0
    while True:
        code, yes, no, value = lines[at]
        if code == seccomp.RETURN:
            return {seccomp.ALLOW: "allowed", 0x50000 | errno.ENOSYS: "not there"}[value]
        if code == seccomp.LOAD:
            loaded, at = data[value], at + 1
        else:
            holds = loaded == value if code == seccomp.EQUAL else loaded >= value
            at += 1 + (yes if holds else no)


@pytest.mark.parametrize(("machine", "processor"), seccomp.PROCESSORS.items())
def test_what_is_listed_is_not_there_and_all_else_is(machine, processor):
    program = seccomp.program(machine)
    place = list(seccomp.PROCESSORS).index(machine)
    listed = {numbers[place] for numbers in seccomp.REFUSED.values()}
    assert len(listed) == len(seccomp.REFUSED)
    assert {number for number in range(600) if answer(program, processor, number) == "not there"} == listed


def test_the_same_calls_by_other_numbers_are_not_there_either():
    program = seccomp.program("x86_64")
    assert answer(program, I386, 0) == "not there"
    assert answer(program, seccomp.PROCESSORS["x86_64"], seccomp.FIRST_OF_X32 + 319) == "not there"


def test_of_a_processor_that_nobody_listed_there_is_no_filter(monkeypatch):
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
