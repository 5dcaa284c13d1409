"""A process for one notebook: runs its cells, executes requests, and is replaced when it dies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.files.untrusted_json import loads
from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.cell_lines import Claim
from mlhood.grading.checks.expect import single_line
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task
from mlhood.grading.rpc.cell_runner import CALL, CELL
from mlhood.grading.rpc.codec import MAX_MESSAGE_BYTES, CodecError, decode, encode
from mlhood.grading.rpc.pipes import NoAnswer, TooLate, WrongAnswer, ask
from mlhood.grading.rpc.server import write_fresh
from mlhood.grading.rpc.sources import python_path
from mlhood.grading.rpc.transport import MAX_FETCHED_BYTES, InvalidFile, NoReply

INLINE = "module://matplotlib_inline.backend_inline"  # as Jupyter has it
RUNNER = ("-P", "-m", "mlhood.grading.rpc.cell_runner")
START_SECONDS = 300.0
MAX_CELL_BYTES, MAX_CELL_VALUES = 16 << 20, 100_000  # of the reply to a cell
MAX_ERROR_CHARACTERS = 500  # it is shown beside every check of its task
MAX_FRAMES, MAX_TRACEBACK_CHARACTERS = 64, 100_000
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARKED_LINE = re.compile(r"^-{1,6}> ?(\d{1,6}) (.{1,1000})$", re.MULTILINE)  # `----> 7     y[i] = x[i + 1]`
SYNTAX_ERROR_LINE = re.compile(r"\([^()]*, line (\d{1,6})\)$")
CPU_CLOCK = 2  # the lowest bits of the clock id that clock_getcpuclockid(3) returns for a process
COPY = "import pathlib as _pathlib; _pathlib.Path({name!r}).write_bytes({data!r})"
COPY_SECONDS = 60.0
MAX_COPIED_BYTES = 1 << 20  # a small model, but no library
EXECUTION_COUNTS = range(1 << 31)
ENDED = "ended the Python process (killed, out of memory, or an exit call)"


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended: its error in words, or empty; and whether the kernel is still alive.

    `lines` are those that the traceback marks, the innermost last, with their numbers (see `cell_lines`).
    """

    error: str = ""
    alive: bool = True
    lines: tuple[Claim, ...] = ()


class Kernel:
    """A Python process that runs cells (see `rpc.cell_runner`). Use it in a `with` statement.

    A kernel that dies or hangs is replaced by a new one, in which the successful cells so far are run again, so that
    later tasks find what earlier ones defined.

    Args:
        folder: Its working folder.
        libraries: Of a bare kernel, the libraries that exist in it (see `bare`).
    """

    def __init__(self, folder: Path, libraries: Libraries | None = None) -> None:
        self.folder = folder
        self._libraries = libraries
        self._exchange = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        self._history: list[tuple[str, float]] = []  # cells, and the limits that they ran under
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[IO[bytes], IO[bytes]] | None = None

    @property
    def scratch(self) -> Path:
        """A folder that both processes can write."""
        return Path(self._exchange.name)

    @property
    def pid(self) -> int | None:
        """The process from which all that the notebook has started descends; None if there is none."""
        return None if self._process is None else self._process.pid

    def __enter__(self) -> Kernel:
        try:
            self._start()
        except BaseException:  # Ctrl-C, too: a failing __enter__ is not followed by __exit__
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()
        self._exchange.cleanup()

    def run(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        """Run a cell and store its outputs in it. A cell that kills the kernel has none, and affects no other cell."""
        outcome = self._execute(cell, seconds)
        if outcome.alive:
            self._history.append((cell.source, seconds))
        else:
            self._restart()
        return outcome

    def send(self, request: bytes, seconds: float) -> bytes:
        """Send a request to the notebook's objects (see `transport.Transport`) and return the reply."""
        try:
            self._upload()
            return self._ask(CALL + request, seconds, MAX_MESSAGE_BYTES)
        except OSError as error:
            raise NoReply(f"the folder for requests has been damaged: {error.strerror}") from None
        except NoReply:
            self._restart()
            raise

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the kernel so far, of all its threads; None where work of it may be hidden.

        That is, on systems other than Linux, and where a kernel that is not trusted can start other processes.
        """
        pid = self._only_process() if sys.platform == "linux" else None
        return None if pid is None else time.clock_gettime(~pid << 3 | CPU_CLOCK)

    # -- overridden by kernels that are isolated from this process

    def _only_process(self) -> int | None:
        """Return the process that does all work of the notebook, or None; here the notebook is trusted."""
        return self.pid

    def fetch(self, path: Path) -> None:
        """Make a file of the notebook available at its path in this process (see `transport.Transport`)."""

    def _upload(self) -> None:
        """Make the files in `scratch` available to the kernel."""

    def _launch(self) -> tuple[IO[bytes], IO[bytes]]:
        """Start the process, and return the pipes to it and from it."""
        command, variables = (
            [sys.executable, *RUNNER],
            {"PYTHONPATH": python_path()},
        )
        if self._libraries is not None:
            files = files_of(self._libraries)
            command, variables = files.command(), files.environment()
        return self._open(command, self.folder, {**os.environ, "MPLBACKEND": INLINE, **variables})

    def _open(self, command: list[str], folder: Path, variables: dict[str, str]) -> tuple[IO[bytes], IO[bytes]]:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the grader, which then kills it with its children
        )
        return cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)

    def _kill(self) -> None:
        """Kill the process and all that it has started. May be called in any thread, and more than once."""
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    # --

    def _copy(self, inside: Path, path: Path) -> None:
        """Copy a file that the kernel reads to a path of this process; if there is none, remove an earlier copy.

        Raises:
            InvalidFile: See `transport.InvalidFile`.
        """
        try:
            data = self._call("read_file", str(inside), MAX_FETCHED_BYTES)
            path.unlink(missing_ok=True)
            if isinstance(data, bytes):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_fresh(path, data)
        except (OSError, NoReply):
            data = False
        if data is not None and not isinstance(data, bytes):
            raise InvalidFile(f"is not a regular file of at most {MAX_FETCHED_BYTES >> 20} MiB that can be read")

    def _call(self, name: str, *args: object) -> Any:
        """Return what a function of `rpc.server` returns in the kernel; False if it fails."""
        request = {
            "target": f"mlhood.grading.rpc.server:{name}",
            "method": None,
            "call": True,
            "args": args,
            "kwargs": {},
        }
        try:
            reply = decode(self._ask(CALL + encode(request), COPY_SECONDS, MAX_MESSAGE_BYTES))
        except CodecError:
            return False
        return reply.get("value", False) if isinstance(reply, dict) else False

    def _ask(self, request: bytes, seconds: float, limit: int) -> bytes:
        if self._pipes is None:
            raise NoReply("was not run: the kernel has ended")
        try:
            return ask(*self._pipes, request, seconds=seconds, limit=limit, kill=self._kill)
        except TooLate:
            raise NoReply(f"took more than {seconds:g} seconds and was stopped") from None
        except WrongAnswer as error:
            raise NoReply(f"{error} and was stopped") from None
        except NoAnswer:
            raise NoReply(ENDED) from None

    def _execute(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        cell.outputs, cell.execution_count = [], None
        try:
            reply = self._ask(CELL + cell.source.encode("utf-8", "replace"), seconds, MAX_CELL_BYTES)
            cell.outputs, cell.execution_count = _read_outputs(reply)
        except NoReply as error:
            return CellOutcome(str(error), alive=False)
        return _outcome(cell)

    def _restart(self) -> None:
        self._stop()
        self._start()
        for source, seconds in list(self._history):
            if not self._execute(new_code_cell(source), seconds).alive:
                self._history.remove((source, seconds))
                self._restart()
                return

    def _start(self) -> None:
        try:
            for folder in (self.folder, self.scratch):  # a cell may have removed them before it ended its kernel
                folder.mkdir(parents=True, exist_ok=True)
            self._pipes = self._launch()
            self._ask(CELL, START_SECONDS, MAX_CELL_BYTES)
        except (OSError, NoReply) as error:
            raise GradingError(
                "no kernel could be started",
                where=self.folder,
                expected="a Python process with IPython in this environment",
                got=f"{type(error).__name__}: {error}",
                todo="run `mlhood doctor`, and install the course again if it says that something is missing",
            ) from None

    def _stop(self) -> None:
        self._kill()
        for pipe in self._pipes or ():
            with contextlib.suppress(OSError):
                pipe.close()
        if self._process is not None:
            self._process.wait()
        self._process = self._pipes = None


NewKernel = Callable[[Path, Libraries | None], Kernel]
"""Returns a kernel for a notebook with this working folder: a bare one, if libraries are given."""


def _read_outputs(reply: bytes) -> tuple[list[Any], int | None]:
    """Return the outputs and the number of a cell.

    Raises:
        NoReply: They are not what a notebook can hold.
    """
    try:
        data = loads(reply, max_bytes=MAX_CELL_BYTES, max_values=MAX_CELL_VALUES)
        outputs, count = [nbformat.from_dict(output) for output in data["outputs"]], data["execution_count"]
        for output in outputs:
            nbformat.validate(output, ref="output", version=4)
    except Exception as error:  # a hostile process may send anything
        raise NoReply(f"sent invalid outputs ({type(error).__name__}) and was stopped") from None
    return outputs, count if type(count) is int and count in EXECUTION_COUNTS else None


def _outcome(cell: NotebookNode) -> CellOutcome:
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if not errors:
        return CellOutcome()
    error = single_line(f"{errors[-1].ename}: {errors[-1].evalue}"[:MAX_ERROR_CHARACTERS]).rstrip(": ")
    return CellOutcome(error, lines=tuple(_claimed_lines(cell.source, errors[-1])))


def _claimed_lines(source: str, error: NotebookNode) -> Iterator[Claim]:
    """Yield the lines that a traceback marks; the student's process wrote it, so they are only claims."""
    if found := SYNTAX_ERROR_LINE.search(error.evalue[-MAX_ERROR_CHARACTERS:]):
        lines, number = source.split("\n"), int(found[1])
        yield from [(number, lines[number - 1])] if 1 <= number <= len(lines) else []
    traceback = "\n".join(error.traceback[-MAX_FRAMES:])[-MAX_TRACEBACK_CHARACTERS:]
    for number, line in MARKED_LINE.findall(COLOUR.sub("", traceback)):
        yield int(number), line


class NotebookKernels:
    """Kernels that run the same cells. Use it in a `with` statement.

    Attributes:
        notebook: The kernel with all libraries, in whose folder the notebook leaves its files.
        bare: The bare kernels, by their libraries.

    Args:
        tasks: There is a bare kernel for each different `Task.libraries`.
        folder: The notebook's working folder.
        new: Creates a kernel; by default it is not isolated.
    """

    def __init__(self, tasks: Iterable[Task], folder: Path, new: NewKernel | None = None) -> None:
        new = new or Kernel
        self._stack = contextlib.ExitStack()
        libraries = dict.fromkeys(task.libraries for task in tasks if task.libraries)
        # these begin to start while the notebook's kernel does
        self.bare: dict[Libraries, Kernel] = {each: new(self._temporary_folder(), each) for each in libraries}
        self.notebook = new(folder, None)
        self._uncopied = [(kernel, name) for each, kernel in self.bare.items() for name in each.files]

    def __enter__(self) -> NotebookKernels:
        with self._stack:  # unless all of them start
            for kernel in self.all:
                self._stack.enter_context(kernel)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def all(self) -> tuple[Kernel, ...]:
        """All of them, the notebook's first."""
        return (self.notebook, *self.bare.values())

    def run(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        """Run a cell in all kernels. Its outputs and errors are those of the notebook's."""
        outcome = self.notebook.run(cell, seconds)
        self._copy_files()
        for kernel in self.bare.values():
            kernel.run(new_code_cell(cell.source), seconds)
        return outcome

    def _copy_files(self) -> None:
        """Copy `Libraries.files` to the bare kernels, each as soon as the notebook has written it."""
        for kernel, name in list(self._uncopied):
            path = self.notebook.folder / name
            with contextlib.suppress(InvalidFile):
                self.notebook.fetch(path)
            if path.is_file() and path.stat().st_size <= MAX_COPIED_BYTES:
                kernel.run(new_code_cell(COPY.format(name=name, data=path.read_bytes())), COPY_SECONDS)
                self._uncopied.remove((kernel, name))

    def session(self, task: Task, session: Session) -> Session:
        """Return the session in which the functions of a task are called.

        Args:
            task: The task.
            session: That of the notebook's kernel.
        """
        if task.libraries is None:
            return session
        kernel = self.bare[task.libraries]
        return replace(session, transport=kernel, scratch=kernel.scratch, notebook=session.transport)

    def _temporary_folder(self) -> Path:
        folder = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        return Path(self._stack.enter_context(folder))
