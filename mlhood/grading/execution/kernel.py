"""A Jupyter kernel for one notebook: runs its cells, executes requests, and is replaced when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.errors import GradingError
from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.cell_lines import Claim
from mlhood.grading.checks.expect import single_line
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task
from mlhood.grading.rpc.codec import MAX_MESSAGE_BYTES, CodecError
from mlhood.grading.rpc.file_channel import read_message, write_fresh
from mlhood.grading.rpc.transport import MAX_FETCHED_BYTES, InvalidFile, NoReply

SERVE = "import mlhood.grading.rpc.server as _server; _server.serve({folder!r}, {number})"
START_SECONDS = 300
MAX_ERROR_CHARACTERS = 500  # it is shown beside every check of its task
MAX_FRAMES, MAX_TRACEBACK_CHARACTERS = 64, 100_000
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MARKED_LINE = re.compile(r"^-{1,6}> ?(\d{1,6}) (.{1,1000})$", re.MULTILINE)  # `----> 7     y[i] = x[i + 1]`
SYNTAX_ERROR_LINE = re.compile(r"\([^()]*, line (\d{1,6})\)$")
CPU_CLOCK = 2  # the lowest bits of the clock id that clock_getcpuclockid(3) returns for a process
COPY = "import pathlib as _pathlib; _pathlib.Path({name!r}).write_bytes({data!r})"
COPY_SECONDS = 60.0
MAX_COPIED_BYTES = 1 << 20  # a small model, but no library
IGNORE_EXIT = "get_ipython().ask_exit = lambda: None"  # `exit()` and `quit()` would end the kernel some time later


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended: its error in words, or empty; and whether the kernel is still alive.

    `lines` are those that the traceback marks, the innermost last, with their numbers (see `cell_lines`).
    """

    error: str = ""
    alive: bool = True
    lines: tuple[Claim, ...] = ()


class Kernel:
    """A Python kernel in a separate process. Use it in a `with` statement.

    A kernel that dies or hangs is replaced by a new one, in which the successful cells so far are run again, so that
    later tasks find what earlier ones defined.

    Args:
        folder: Its working folder.
        libraries: Of a bare kernel, the libraries that exist in it (see `bare`).
    """

    client_class = NotebookClient

    def __init__(self, folder: Path, libraries: Libraries | None = None) -> None:
        self.folder = folder
        self._libraries = libraries
        self._exchange = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        self._requests = 0
        self._history: list[tuple[str, float]] = []  # cells, and the limits that they ran under
        self._kept = 0
        self._client: NotebookClient | None = None
        self._loop = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)  # zmq needs it on Windows too

    @property
    def scratch(self) -> Path:
        """A folder that both processes can write."""
        return Path(self._exchange.name)

    @property
    def pid(self) -> int | None:
        """The process from which all that the notebook has started descends; None if there is none."""
        process = getattr(getattr(getattr(self._client, "km", None), "provisioner", None), "process", None)
        return None if process is None else process.pid

    def __enter__(self) -> Kernel:
        try:
            self._start()
        except BaseException:  # Ctrl-C, too: a failing __enter__ is not followed by __exit__
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()
        self._loop.close()
        self._exchange.cleanup()

    def run(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        """Run a cell and store its outputs in it. A cell that kills the kernel affects no other cell."""
        outcome = self._execute(cell, seconds)
        if outcome.alive:
            self._history.append((cell.source, seconds))
        else:
            self._restart()
        return outcome

    def send(self, request: bytes, seconds: float) -> bytes:
        """Send a request to the notebook's objects (see `transport.Transport`) and return the reply."""
        self._requests += 1
        number = self._requests
        sent, received = self.scratch / f"request-{number}", self.scratch / f"reply-{number}"
        try:
            write_fresh(sent, request)
            self._upload()
        except OSError as error:
            raise NoReply(f"the folder for requests has been damaged: {error.strerror}") from None
        cell = new_code_cell(SERVE.format(folder=str(self.scratch), number=number))
        outcome = self._execute(cell, seconds, store_history=False)  # does not count as a cell of the notebook
        if not outcome.alive:
            self._restart()
            raise NoReply(outcome.error)
        try:
            self.fetch(received, MAX_MESSAGE_BYTES)
            return read_message(received)
        except InvalidFile as error:
            raise NoReply(f"the reply {error}") from None
        except (OSError, CodecError) as error:
            raise NoReply(outcome.error or str(error)) from None
        finally:
            self._discard([sent.name, received.name])

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the kernel so far, of all its threads; None where work of it may be hidden.

        That is, on systems other than Linux, and where a kernel that is not trusted can start other processes.
        """
        pid = self._only_process() if sys.platform == "linux" else None
        return None if pid is None else time.clock_gettime(~pid << 3 | CPU_CLOCK)

    def keep_history(self) -> None:
        """Remember the cells so far as the ones that `drop_history` leaves."""
        self._kept = len(self._history)

    def drop_history(self) -> None:
        """Do not run the cells since `keep_history` again when the kernel is replaced."""
        del self._history[self._kept :]

    # -- overridden by kernels that are isolated from this process

    def _only_process(self) -> int | None:
        """Return the process that does all work of the notebook, or None; here the notebook is trusted."""
        return self.pid

    def fetch(self, path: Path, limit: int = MAX_FETCHED_BYTES) -> None:
        """Make a file of the notebook of at most `limit` bytes available at its path in this process."""

    def _upload(self) -> None:
        """Make the files in `scratch` available to the kernel."""

    def _discard(self, names: list[str]) -> None:
        """Remove the files of a request that is answered."""

    def _execute(self, cell: NotebookNode, seconds: float, *, store_history: bool = True) -> CellOutcome:
        client = self._client
        if client is None:
            return CellOutcome("was not run: the kernel has ended", alive=False)
        # nbclient finds the output that a message updates in its own notebook
        client.nb.cells[0] = cell
        client._display_id_map.clear()
        client.timeout = math.ceil(seconds)  # nbclient takes whole seconds, and 0 for no limit
        try:
            self._wait(client.async_execute_cell(cell, 0, store_history=store_history))
        except CellTimeoutError:
            return CellOutcome(f"took more than {seconds:g} seconds and was stopped", alive=False)
        except DeadKernelError:
            return CellOutcome("ended the Python process (killed, out of memory, or an exit call)", alive=False)
        except CellControlSignal as error:
            return CellOutcome(str(error).splitlines()[-1])
        except Exception as error:  # a hostile kernel may send anything, and nbclient trusts it
            return CellOutcome(f"sent an invalid Jupyter message ({type(error).__name__}) and was stopped", alive=False)
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
        resources = {"metadata": {"path": str(self.folder)}}
        client = self.client_class(
            new_notebook(cells=[new_code_cell("")]),
            kernel_name="python3",
            startup_timeout=START_SECONDS,
            allow_errors=True,
            shutdown_kernel="immediate",
            skip_cells_with_tag="mlhood: no cell is skipped",
            resources=resources,
        )
        try:
            self._wait(self._start_kernel(client))
        except Exception as error:  # whatever prevents a kernel from starting
            raise GradingError(
                "no Jupyter kernel could be started",
                where=self.folder,
                expected="a Python kernel in this environment",
                got=f"{type(error).__name__}: {error}",
                todo="run `mlhood doctor`, and install the course again if it says that ipykernel is missing",
            ) from None
        self._client = client
        self._execute(new_code_cell(IGNORE_EXIT), START_SECONDS, store_history=False)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> None:
        # `Runner.run` would turn Ctrl-C into a cancellation, which nbclient takes for the death of the kernel
        self._loop.get_loop().run_until_complete(work)

    async def _start_kernel(self, client: NotebookClient) -> None:
        for folder in (self.folder, self.scratch):  # a cell may have removed them before it ended its kernel
            folder.mkdir(parents=True, exist_ok=True)
        self._configure(client)
        await client.async_start_new_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await client.async_start_new_kernel_client()

    def _configure(self, client: NotebookClient) -> None:
        manager: Any = client.create_kernel_manager()
        if hasattr(os, "killpg"):  # sockets can be files, so no port is open that others could connect to
            manager.transport, manager.ip = "ipc", str(self.scratch / "k")
        if self._libraries is not None:
            files = files_of(self._libraries)
            manager.kernel_spec.argv = files.command("{connection_file}")
            manager.kernel_spec.env = files.environment()

    def _kill_processes(self, client: NotebookClient) -> None:
        group = getattr(getattr(client.km, "provisioner", None), "pgid", None)
        if group and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)  # the kernel's children, too, which a regular shutdown leaves behind

    def _stop(self) -> None:
        client, self._client = self._client, None
        if client is None or client.km is None:
            return
        self._kill_processes(client)
        with contextlib.suppress(Exception):
            self._wait(_cancel_tasks())
            self._wait(client._async_cleanup_kernel())  # nbclient's only way to end kernel and channels


NewKernel = Callable[[Path, Libraries | None], Kernel]
"""Returns a kernel for a notebook with this working folder: a bare one, if libraries are given."""


async def _cancel_tasks() -> None:
    """Cancel and await the tasks that an interruption or a time limit has left, so that nothing is logged later."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _outcome(cell: NotebookNode) -> CellOutcome:
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if not errors:
        return CellOutcome()
    error = single_line(f"{errors[-1].ename}: {errors[-1].evalue}"[:MAX_ERROR_CHARACTERS]).rstrip(": ")
    return CellOutcome(error, lines=tuple(_claimed_lines(cell.source, errors[-1])))


def _claimed_lines(source: str, error: NotebookNode) -> Iterator[Claim]:
    """Yield the lines that a traceback marks; the student's process wrote it, so they are only claims."""
    if found := SYNTAX_ERROR_LINE.search(str(error.evalue)[-MAX_ERROR_CHARACTERS:]):
        lines, number = source.split("\n"), int(found[1])
        yield from [(number, lines[number - 1])] if 1 <= number <= len(lines) else []
    frames = error.traceback if isinstance(error.traceback, list) else []
    traceback = "\n".join(map(str, frames[-MAX_FRAMES:]))[-MAX_TRACEBACK_CHARACTERS:]
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
