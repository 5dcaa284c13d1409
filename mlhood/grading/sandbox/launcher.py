"""The first program in a sandbox: sends descriptors to the grader, sets limits, and becomes the cell runner.

    python -P -m mlhood.grading.sandbox.launcher SETUP

`SETUP` is JSON: `folders` (the writable ones), `imports` (modules to import in advance), `file` (bytes in one file),
`threads` and `descriptors` (limits), and `bare` (of a bare kernel, what `bare.kernel.install` needs). Its standard
input and output are a socket to the grader, to which it sends descriptors through which the grader accesses the
sandbox: of its /proc, its first process, this process and the folders. All this happens before any student code runs.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

OOM_SCORE = "1000"  # if the machine runs out of memory in spite of all limits, this process is killed first


def main() -> None:
    """Set up the process, and run cells until it ends."""
    setup = json.loads(sys.argv[1])
    set_limits(setup["file"], setup["threads"], setup["descriptors"])
    with socket.socket(fileno=os.dup(0)) as grader:
        send_descriptors(grader, setup["folders"])
    if setup["bare"]:
        run_bare_kernel(setup["bare"])
        return
    for name in setup["imports"]:
        with contextlib.suppress(Exception):  # the notebook's own import will raise the error again
            importlib.import_module(name)
    from mlhood.grading.rpc import cell_runner

    cell_runner.run()


def set_limits(file: int, threads: int, descriptors: int) -> None:
    """Set the limits that the system enforces on a process, irrevocably."""
    Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    of_one_process = min(descriptors // 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (of_one_process, of_one_process))
    resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))  # for root it never holds


def send_descriptors(grader: socket.socket, folders: list[str]) -> None:
    """Send descriptors of /proc, the first process, this process, and the folders."""
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in ("/proc", *folders)]
    descriptors[1:1] = [os.pidfd_open(1), os.pidfd_open(os.getpid())]
    socket.send_fds(grader, [b"ready"], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def run_bare_kernel(setup: dict[str, Any]) -> None:
    """Run the kernel of `bare.kernel`.

    As one process, its CPU time is known outside, and no other Python has the products that are taken out of it.
    """
    from mlhood.grading.bare import kernel
    from mlhood.grading.sandbox import seccomp

    if not setup["processes"]:
        seccomp.allow_threads_only()
    kernel.install(setup)
    kernel.run_kernel()


if __name__ == "__main__":
    main()
