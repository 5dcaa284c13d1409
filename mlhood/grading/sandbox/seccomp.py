"""A seccomp filter for bubblewrap: system calls that no notebook needs (seccomp(2), "Filters").

Two kinds of calls fail as if the kernel did not implement them, which programs are prepared for:

1. Those that allocate memory which belongs to no process and no file system, so that no limit would apply to it.
2. Those through which most vulnerabilities of the kernel were exploited.

There is no filter for a processor whose call numbers are not listed here; all other isolation holds there, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Iterator

# audit architecture (linux/audit.h) by the name in platform.machine
PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# call numbers, for these processors in this order
REFUSED = {
    # memory outside processes and file systems
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    # often vulnerable
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
FIRST_OF_X32 = 0x40000000  # the same calls of x86_64 under other numbers begin here
# instructions (linux/bpf_common.h), and offsets of the call number and the processor (struct seccomp_data)
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, PROCESSOR = 0, 4
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS


def program(machine: str | None = None) -> bytes:
    """Return the filter for a processor (see `platform.machine`), by default this one; empty if it is not supported."""
    machine = machine or platform.machine()
    if machine not in PROCESSORS:
        return b""
    column = list(PROCESSORS).index(machine)
    tests = [(EQUAL, numbers[column]) for numbers in REFUSED.values()]
    if machine == "x86_64":
        tests.append((AT_LEAST, FIRST_OF_X32))
    instructions = [
        _instruction(LOAD, PROCESSOR),
        _instruction(EQUAL, PROCESSORS[machine], skip=1),
        _instruction(RETURN, REFUSE),  # a 32-bit call, which has other numbers
        _instruction(LOAD, NUMBER),
        *(_instruction(test, number, skip=len(tests) - i) for i, (test, number) in enumerate(tests)),
        _instruction(RETURN, ALLOW),
        _instruction(RETURN, REFUSE),
    ]
    return b"".join(instructions)


def _instruction(code: int, value: int, skip: int = 0) -> bytes:
    """Return an instruction; `skip` is the number of instructions to skip if a test is true (struct sock_filter)."""
    return struct.pack("=HBBI", code, skip, 0, value)


@contextlib.contextmanager
def opened() -> Iterator[tuple[int, ...]]:
    """Yield a descriptor from which bubblewrap can read the filter, or none."""
    if not (filter_ := program()):
        yield ()
        return
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, filter_)  # it fits into the pipe's buffer
        os.close(write_end)
        yield (read_end,)
    finally:
        os.close(read_end)
