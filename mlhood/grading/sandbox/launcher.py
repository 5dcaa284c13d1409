"""The first program in a sandbox: sends descriptors to the grader, sets limits, and becomes the kernel.

    python -P -m mlhood.grading.sandbox.launcher

Its standard input is a socket to the grader, which sends one line of JSON: `connection` (the kernel's connection
information), `folders` (the writable ones), `imports` (modules to import in advance), `file` (bytes in one file),
`threads` and `descriptors` (limits), and `bare` (of a bare kernel, what `bare.kernel.install` needs). The launcher
sends back descriptors through which the grader accesses the sandbox: of its /proc, its first process, this process and
the folders. All this happens before any student code runs.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

MAX_SETUP_BYTES = 1 << 16
# earlier kernels also count the user's processes outside the sandbox; for root the limit never holds
NPROC_BY_NAMESPACE = (5, 14)
OOM_SCORE = "1000"  # if the machine runs out of memory in spite of all limits, this process is killed first


def main() -> None:
    """Set up the process, and run the kernel until it ends."""
    with socket.socket(fileno=os.dup(0)) as grader:
        setup = json.loads(grader.makefile("rb").readline(MAX_SETUP_BYTES))
        connection = Path(setup["folders"][-1], "connection.json")
        connection.write_text(json.dumps(setup["connection"]), encoding="utf-8")
        set_limits(setup["file"], setup["threads"], setup["descriptors"])
        detach_standard_streams()
        send_descriptors(grader, setup["folders"])
    if setup["bare"]:
        run_bare_kernel(setup["bare"], str(connection))
        return
    for name in setup["imports"]:
        with contextlib.suppress(Exception):  # the notebook's own import will raise the error again
            importlib.import_module(name)
    force_inline_figures()
    sys.path.append(str(Path.cwd()))  # last, so that a file that the notebook writes replaces no library
    run_kernel(connection)


def set_limits(file: int, threads: int, descriptors: int) -> None:
    """Set the limits that the system enforces on a process, irrevocably."""
    Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    of_one_process = min(descriptors // 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (of_one_process, of_one_process))
    if kernel_version() >= NPROC_BY_NAMESPACE:
        resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))


def kernel_version() -> tuple[int, int]:
    """Return the version of Linux as two numbers."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(itertools.takewhile(str.isdigit, minor)))


def detach_standard_streams() -> None:
    """Connect the standard streams to /dev/null: nobody reads them, and a full pipe would block."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def send_descriptors(grader: socket.socket, folders: list[str]) -> None:
    """Send descriptors of /proc, the first process, this process, and the folders."""
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in ("/proc", *folders)]
    descriptors[1:1] = [os.pidfd_open(1), os.pidfd_open(os.getpid())]
    socket.send_fds(grader, [b"ready"], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)


def force_inline_figures() -> None:
    """Draw figures inline where the notebook asks for a window or a widget: there is no display."""
    from IPython.core.interactiveshell import InteractiveShell

    shell_class: Any = InteractiveShell
    enable = shell_class.enable_matplotlib
    shell_class.enable_matplotlib = lambda shell, gui=None: enable(shell, "inline")
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    switch_backend = pyplot.switch_backend

    def switch_if_possible(newbackend: str) -> None:
        try:
            switch_backend(newbackend)
        except ImportError as error:
            print(f"{error}; figures stay inline", file=sys.stderr)

    pyplot.switch_backend = switch_if_possible


def run_bare_kernel(setup: dict[str, Any], connection: str) -> None:
    """Run the kernel of `bare.kernel`.

    As one process, its CPU time is known outside, and no other Python has the products that are taken out of it.
    """
    from mlhood.grading.bare import kernel
    from mlhood.grading.sandbox import seccomp

    if not setup["processes"]:
        seccomp.allow_threads_only()
    kernel.install(setup)
    kernel.run_kernel(connection)


def run_kernel(connection: Path) -> None:
    """Run ipykernel, Jupyter's kernel python3."""
    from ipykernel import kernelapp

    application: Any = kernelapp
    application.launch_new_instance(argv=["-f", str(connection), "--HistoryManager.hist_file=:memory:"])


if __name__ == "__main__":
    main()
