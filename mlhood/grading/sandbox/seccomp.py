"""System calls that no notebook needs: a filter for bubblewrap, as the kernel wants it (seccomp(2), "Filters").

Two kinds are answered as if the kernel did not have them, which programs are prepared for:

1. Those that make memory which belongs to no process and lies in no file system, so that no limit would see it.
2. Those that most holes in the kernel were reached by.

There is no filter for a processor whose numbers are not listed here; all else holds there, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Iterator

# by name in platform.machine: the processor's number (linux/audit.h)
PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# the calls' numbers, by processor in this order
REFUSED = {
    # memory that belongs to nobody
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    # often a hole
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
FIRST_OF_X32 = 0x40000000  # the same calls of x86_64 under other numbers
# instructions (linux/bpf_common.h), and where the call's number and its processor lie (struct seccomp_data)
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, PROCESSOR = 0, 4
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.ENOSYS


def program(machine: str | None = None) -> bytes:
    """The filter for a processor, as `platform.machine` names it; this one by default. Empty if none is known."""
    machine = machine or platform.machine()
    if machine not in PROCESSORS:
        return b""
    at_place = list(PROCESSORS).index(machine)
    tests = [(EQUAL, numbers[at_place]) for numbers in REFUSED.values()]
    if machine == "x86_64":
        tests.append((AT_LEAST, FIRST_OF_X32))
    lines = [
        _line(LOAD, PROCESSOR),
        _line(EQUAL, PROCESSORS[machine], skip=1),
        _line(RETURN, REFUSE),  # a call in the manner of an older processor, under numbers of its own
        _line(LOAD, NUMBER),
        *(_line(test, number, skip=len(tests) - at) for at, (test, number) in enumerate(tests)),
        _line(RETURN, ALLOW),
        _line(RETURN, REFUSE),
    ]
    return b"".join(lines)


def _line(code: int, value: int, skip: int = 0) -> bytes:
    """One instruction; `skip` is how many are left out if a test holds (struct sock_filter)."""
    return struct.pack("=HBBI", code, skip, 0, value)


@contextlib.contextmanager
def opened() -> Iterator[tuple[int, ...]]:
    """A descriptor from which bubblewrap can read the filter, or none."""
    if not (filter_ := program()):
        yield ()
        return
    reading, writing = os.pipe()
    try:
        os.write(writing, filter_)  # a pipe holds far more
        os.close(writing)
        yield (reading,)
    finally:
        os.close(reading)
