"""The first program in the sandbox: hands the way in to the grader, takes on the limits, and becomes the kernel.

    python -P -m mlhood.grading.sandbox.launcher

Its standard input is a socket to the grader, from which one line of JSON comes: `connection` (the kernel's connection
information), `folders` (what is written here), `imports` (modules to load before they are asked for), `file` (bytes in
one file), `threads` and `descriptors` (limits). Back go descriptors, by which the grader reaches into the sandbox: of
its /proc, of its first process, of this one and of the folders. All this is over before the first cell of a student
runs.
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

LONGEST_SETUP = 1 << 16
# before, a limit on processes counted those of the same user outside as well; it never holds for root
COUNTS_BY_NAMESPACE = (5, 14)
EXPENDABLE = "1000"  # should the machine run out of memory in spite of all limits, the kernel begins here


def main() -> None:
    """Set up, and run the kernel until it ends."""
    with socket.socket(fileno=os.dup(0)) as grader:
        setup = json.loads(grader.makefile("rb").readline(LONGEST_SETUP))
        connection = Path(setup["folders"][-1], "connection.json")
        connection.write_text(json.dumps(setup["connection"]), encoding="utf-8")
        limit(setup["file"], setup["threads"], setup["descriptors"])
        be_silent()
        hand_over(grader, setup["folders"])
    for name in setup["imports"]:
        with contextlib.suppress(Exception):  # the notebook's own import will say what is wrong with it
            importlib.import_module(name)
    open_no_windows()
    find_modules_beside_the_notebook()
    run_kernel(connection)


def limit(file: int, threads: int, descriptors: int) -> None:
    """Take on what the system itself can hold a process to, with no way back."""
    Path("/proc/self/oom_score_adj").write_text(EXPENDABLE, encoding="ascii")
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = min(descriptors // 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1])  # of one process
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if kernel_version() >= COUNTS_BY_NAMESPACE:
        resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))


def kernel_version() -> tuple[int, int]:
    """Linux's own, as two numbers."""
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(itertools.takewhile(str.isdigit, minor)))


def be_silent() -> None:
    """Let go of the three standard streams: nobody reads them, and nothing may wait for that."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def hand_over(grader: socket.socket, folders: list[str]) -> None:
    """Send descriptors: /proc, the first process, this one, and then the folders."""
    opened = [os.open(place, os.O_RDONLY | os.O_DIRECTORY) for place in ("/proc", *folders)]
    opened[1:1] = [os.pidfd_open(1), os.pidfd_open(os.getpid())]
    socket.send_fds(grader, [b"ready"], opened)
    for descriptor in opened:
        os.close(descriptor)


def open_no_windows() -> None:
    """Draw below the cell what asks for a window or for widgets: there is no display, and nobody sits before it."""
    from IPython.core.interactiveshell import InteractiveShell

    shells: Any = InteractiveShell
    enable = shells.enable_matplotlib
    shells.enable_matplotlib = lambda shell, gui=None: enable(shell, "inline")
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    switch = pyplot.switch_backend

    def switch_if_possible(newbackend: str) -> None:
        try:
            switch(newbackend)
        except ImportError as error:
            print(f"{error}; pictures stay where they were", file=sys.stderr)

    pyplot.switch_backend = switch_if_possible


def find_modules_beside_the_notebook() -> None:
    """See that a file which the notebook writes can be imported, after the standard library, as IPython has it.

    Python was told to leave the working folder out, lest this program itself be looked for there.
    """
    libraries = (number for number, place in enumerate(sys.path) if Path(place).name.endswith("-packages"))
    sys.path.insert(next(libraries, len(sys.path)), "")


def run_kernel(connection: Path) -> None:
    """Be the kernel that Jupyter knows as python3."""
    from ipykernel import kernelapp

    application: Any = kernelapp
    application.launch_new_instance(argv=["-f", str(connection), "--HistoryManager.hist_file=:memory:"])


if __name__ == "__main__":
    main()
