"""The seccomp filter, executed by an interpreter of the few BPF instructions that it uses."""

from __future__ import annotations

import errno
import os
import struct

import pytest

from mlhood.grading.sandbox import seccomp

I386 = 0x40000003


def result(program: bytes, processor: int, number: int, *arguments: int) -> str:
    """The result of the filter for a call."""
    data = {seccomp.NUMBER: number, seccomp.PROCESSOR: processor}
    data |= {seccomp.ARGUMENT + 8 * i: value for i, value in enumerate([*arguments, 0, 0, 0][:3])}
    instructions = list(struct.iter_unpack("=HBBI", program))
    pc = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[pc]
        if code == seccomp.RETURN:
            return {seccomp.ALLOW: "allowed", 0x50000 | errno.ENOSYS: "not implemented", 0x50000: "ignored"}[value]
        if code == seccomp.LOAD:
            accumulator, pc = data[value], pc + 1
        else:
            true = {
                seccomp.EQUAL: accumulator == value,
                seccomp.AT_LEAST: accumulator >= value,
                seccomp.ANY_BIT: accumulator & value != 0,
            }[code]
            pc += 1 + (if_true if true else if_false)


@pytest.mark.parametrize(("machine", "processor"), seccomp.PROCESSORS.items())
def test_exactly_the_listed_calls_and_newer_ones_are_refused(machine, processor):
    program = seccomp.program(machine)
    column = list(seccomp.PROCESSORS).index(machine)
    listed = {numbers[column] for numbers in seccomp.REFUSED.values() if numbers[column] is not None}
    assert len(listed) >= len(seccomp.REFUSED) - 1
    refused = {number for number in range(600) if result(program, processor, number) == "not implemented"}
    assert refused == listed | set(range(seccomp.NEWER, 600))


@pytest.mark.parametrize(("machine", "processor"), seccomp.PROCESSORS.items())
def test_calls_with_some_arguments_are_refused_or_have_no_effect(machine, processor):
    program = seccomp.program(machine)
    column = list(seccomp.PROCESSORS).index(machine)
    socket_call, setsockopt, fcntl_call = ((41, 198)[column], (54, 208)[column], (72, 25)[column])
    families = {family for family in range(60) if result(program, processor, socket_call, family) == "allowed"}
    assert families == {0, 1, 2, 10, 16}
    assert {o for o in range(60) if result(program, processor, setsockopt, 3, 1, o) == "ignored"} == {7, 8}
    assert {c for c in range(1100) if result(program, processor, fcntl_call, 3, c) == "ignored"} == {6, 7, 37, 38}


@pytest.mark.parametrize(("machine", "processor"), seccomp.PROCESSORS.items())
def test_a_bare_kernel_may_start_threads_only(machine, processor):
    program = seccomp.program(machine, threads_only=True)
    column = list(seccomp.PROCESSORS).index(machine)
    listed = {numbers[column] for numbers in seccomp.PROCESSES.values() if numbers[column] is not None}
    assert all(result(program, processor, number) == "not implemented" for number in listed)
    thread, fork = 0x3D0F00, 0x1200011  # flags of the calls by pthread_create and fork of the GNU C library
    assert result(program, processor, seccomp.CLONE[column], thread) == "allowed"
    assert result(program, processor, seccomp.CLONE[column], fork) == "not implemented"
    assert result(program, processor, 0) == "allowed"


def test_the_same_calls_under_other_numbers_are_refused_too():
    program = seccomp.program("x86_64")
    assert result(program, I386, 0) == "not implemented"
    assert result(program, seccomp.PROCESSORS["x86_64"], 0x40000000 + 319) == "not implemented"


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
