"""The first program in a sandbox: sends descriptors to the grader, sets limits, and becomes the kernel.

    python -P -m mlhood.grading.sandbox.launcher

Its standard input is a socket to the grader, which sends one line of JSON: `connection` (the kernel's connection
information), `folders` (the writable ones), `imports` (modules to import in advance), `file` (bytes in one file),
`threads` and `descriptors` (limits). The launcher sends back descriptors through which the grader accesses the sandbox:
of its /proc, its first process, this process and the folders. All this happens before any student code runs.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.abc
import itertools
import json
import os
import re
import resource
import socket
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType
from typing import Any

MAX_SETUP_BYTES = 1 << 16
# earlier kernels also count the user's processes outside the sandbox; for root the limit never holds
NPROC_BY_NAMESPACE = (5, 14)
MEMORY_FILE = re.compile(r"^/proc/.*/mem$")
# what a pickle may name: types of data and the functions of their packages, except those that run or reach other code
PICKLED_PACKAGES = {
    *("__main__", "builtins", "__builtin__", "numpy", "torch", "pandas", "scipy", "sklearn", "jax", "jaxlib", "mlhood"),
    *("collections", "datetime", "decimal", "fractions", "pathlib", "uuid", "zoneinfo", "copyreg", "_codecs", "enum"),
    *("functools", "itertools", "math", "cmath", "operator", "_operator", "random", "statistics", "string", "time"),
    *("array", "multiprocessing", "concurrent", "_thread", "threading", "types"),
}
PICKLED_CODE = re.compile(
    r"\.(__import__|exec|eval|compile|open|input|breakpoint|getattr|setattr|delattr|globals|locals|vars|type|attrgetter|"
    r"methodcaller|CodeType|FunctionType|testing|f2py|hub|fx|package|utils|computation|_?dynamo|_inductor|grading|cli|"
    r"codegen|commands)\."
)
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
    disable_numba_cache()
    for name in setup["imports"]:
        with contextlib.suppress(Exception):  # the notebook's own import will raise the error again
            importlib.import_module(name)
    force_inline_figures()
    add_working_folder_to_path()
    add_audit_hook()
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


def disable_numba_cache() -> None:
    """Let Numba compile what is decorated with `cache=True`: cached code is a pickle, which the audit hook refuses."""
    with contextlib.suppress(ImportError):
        from numba.core.dispatcher import Dispatcher

        Dispatcher.enable_caching = lambda self: None


def add_working_folder_to_path() -> None:
    """Make modules that the notebook writes importable, after all others: a student's file replaces no library.

    Python was started without the working folder in its path, so that this module itself is not looked up there.
    """
    sys.meta_path.append(OwnModules())


class OwnModules(importlib.abc.MetaPathFinder):
    """Finds modules in the working folder, for imports in a cell or in another of these modules.

    An import there can be read before it runs. What a library imports by a name that it is given cannot, such as a
    back end of Matplotlib.
    """

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a top-level module."""
        if path is not None or not _is_own(_importing_frame()):
            return None
        return PathFinder.find_spec(fullname, [str(Path.cwd())], target)


def _importing_frame() -> FrameType | None:
    """Return the frame of the statement that imports, outside of the import system."""
    frame: FrameType | None = sys._getframe(2)
    while frame and (frame.f_globals.get("__name__") or "").startswith("importlib"):
        frame = frame.f_back
    return frame


def _is_own(frame: FrameType | None) -> bool:
    """Whether a frame runs a cell, or a module in the working folder."""
    if frame is None:
        return False
    file = Path(frame.f_globals.get("__file__") or "/")
    return frame.f_globals.get("__name__") == "__main__" or file.resolve().parent == Path.cwd()


def add_audit_hook() -> None:
    """Refuse what would change the process without any code that can be read.

    That is to open the memory of a process, and to load a pickle that names anything but data: functions in it are
    called with arguments of its own.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "pickle.find_class":
            refuse_functions(*arguments)
        path = arguments[0] if event == "open" else None
        if isinstance(path, (str, bytes)) and MEMORY_FILE.search(os.fsdecode(os.path.realpath(path))):
            raise PermissionError(errno.EACCES, "the memory of a process is closed", os.fsdecode(path))

    sys.addaudithook(hook)


def refuse_functions(module: str, name: str) -> None:
    """Refuse to load what a pickle names, if that is not known to be data or a way to make it.

    Raises:
        PermissionError: It is not.
    """
    if module.partition(".")[0] not in PICKLED_PACKAGES or PICKLED_CODE.search(f".{module}.{name}."):
        raise PermissionError(errno.EACCES, "a pickle may hold data only", f"{module}.{name}")


def run_kernel(connection: Path) -> None:
    """Run ipykernel, Jupyter's kernel python3."""
    from ipykernel import kernelapp

    application: Any = kernelapp
    application.launch_new_instance(argv=["-f", str(connection), "--HistoryManager.hist_file=:memory:"])


if __name__ == "__main__":
    main()
