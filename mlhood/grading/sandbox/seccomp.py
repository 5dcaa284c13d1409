"""A seccomp filter for bubblewrap: system calls that no notebook needs (seccomp(2), "Filters").

Three kinds of calls fail as if the kernel did not implement them, which programs are prepared for:

1. Those that allocate memory which belongs to no process and no file system, so that no limit would apply to it, or
   that use up what the kernel shares out among all processes of a user, the grader's among them.
2. Those through which most vulnerabilities of the kernel were exploited, sockets of rare protocols among them, some of
   which lead out of the sandbox (AF_VSOCK to the host of a virtual machine).
3. Those that are newer than this list.

Three calls succeed without an effect: to choose cores, since the grader does; to enlarge the buffers of a socket, which
`limits` counts by their default size; and to lock a part of a file. Such locks take memory of the kernel without limit;
`flock` takes one for an open file.

There is no filter for a processor whose call numbers are not listed here; all other isolation holds there, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import struct
from collections.abc import Iterator, Mapping

# audit architecture (linux/audit.h) by the name in platform.machine
PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# call numbers, for these processors in this order
REFUSED = {
    # memory outside processes and file systems, or shared by all processes of a user
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "io_setup": (206, 0),
    "vmsplice": (278, 75),  # a byte of a huge page in a pipe keeps 2 MiB that the process has freed
    "timer_create": (222, 107),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # often vulnerable
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
# what starts other processes and programs; without clone3, threads are created by clone
PROCESSES = {
    "fork": (57, None),
    "vfork": (58, None),
    "clone3": (435, 435),
    "execve": (59, 221),
    "execveat": (322, 281),
}
CLONE, CLONE_THREAD = (56, 220), 0x10000
INSTRUCTION = struct.Struct("=HBBI")
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h, linux/seccomp.h
NEWER = 463  # this and all following calls; those of x86_64 under other numbers (x32) follow, too
# instructions (linux/bpf_common.h), and offsets of the call number, the processor and the first argument's lower half
# (struct seccomp_data)
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, PROCESSOR, ARGUMENT, ARGUMENT_BYTES = 0, 4, 16, 8
RETURN_ERROR = 0x00050000
ALLOW, REFUSE, IGNORE = 0x7FFF0000, RETURN_ERROR | errno.ENOSYS, RETURN_ERROR
# calls with some values of an argument: the call's numbers, the argument's position, first and last value, and result
RESTRICTED = (
    # families of sockets other than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK
    *(((41, 198), 0, first, last, REFUSE) for first, last in ((3, 9), (11, 15), (17, 0xFFFF))),
    ((54, 208), 2, 7, 8, IGNORE),  # setsockopt: SO_SNDBUF, SO_RCVBUF
    ((203, 122), 0, 0, 0x7FFFFFFF, IGNORE),  # sched_setaffinity: out of the core on which a claim is measured
    *(((72, 25), 1, first, first + 1, IGNORE) for first in (6, 37)),  # fcntl: F_(OFD_)SETLK, F_(OFD_)SETLKW
)


def program(machine: str | None = None, *, threads_only: bool = False) -> bytes:
    """Return a filter; empty if the processor is not supported.

    Args:
        machine: The processor (see `platform.machine`), by default this one.
        threads_only: Whether the filter is for a process that may start threads, and no processes or programs.
    """
    machine = machine or platform.machine()
    if machine not in PROCESSORS:
        return b""
    column = list(PROCESSORS).index(machine)
    refused: Mapping[str, tuple[int | None, ...]] = PROCESSES if threads_only else REFUSED
    tests = [(EQUAL, number) for numbers in refused.values() if (number := numbers[column]) is not None]
    instructions = [
        _instruction(LOAD, PROCESSOR),
        _instruction(EQUAL, PROCESSORS[machine], skip=1),
        _instruction(RETURN, REFUSE),  # a 32-bit call, which has other numbers
        _instruction(LOAD, NUMBER),
        *(_instruction(test, number, skip=len(tests) - i) for i, (test, number) in enumerate(tests)),
        _instruction(AT_LEAST, NEWER, otherwise=1),
        _instruction(RETURN, REFUSE),
    ]
    for numbers, argument, first, last, result in RESTRICTED:
        instructions += [
            _instruction(LOAD, NUMBER),
            _instruction(EQUAL, numbers[column], otherwise=4),
            _instruction(LOAD, ARGUMENT + ARGUMENT_BYTES * argument),
            _instruction(AT_LEAST, first, otherwise=2),
            _instruction(AT_LEAST, last + 1, skip=1),
            _instruction(RETURN, result),
        ]
    if threads_only:
        instructions += [
            _instruction(LOAD, NUMBER),
            _instruction(EQUAL, CLONE[column], otherwise=3),
            _instruction(LOAD, ARGUMENT),
            _instruction(ANY_BIT, CLONE_THREAD, skip=1),
            _instruction(RETURN, REFUSE),
        ]
    return b"".join([*instructions, _instruction(RETURN, ALLOW)])


def _instruction(code: int, value: int, skip: int = 0, otherwise: int = 0) -> bytes:
    """Return an instruction with the numbers of those to skip if a test is true or not (struct sock_filter)."""
    return INSTRUCTION.pack(code, skip, otherwise, value)


def allow_threads_only() -> None:
    """Let this process start threads, and no processes or programs. Call it before there are threads."""
    import ctypes

    filter_ = program(threads_only=True)
    text = ctypes.create_string_buffer(filter_, len(filter_))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    # struct sock_fprog: the number of instructions, and where they are
    words = struct.pack("@HP", len(filter_) // INSTRUCTION.size, ctypes.addressof(text))
    if filter_ and libc.prctl(SET_SECCOMP, FILTER, ctypes.create_string_buffer(words, len(words)), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be installed")


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
