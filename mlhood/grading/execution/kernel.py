"""A Jupyter kernel of its own for one notebook: runs cells, answers requests, and survives being killed."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from mlhood.errors import GradingError
from mlhood.grading.checks.expect import sentence
from mlhood.grading.checks.submission import NoAnswer
from mlhood.grading.rpc.codec import Message, WireError
from mlhood.grading.rpc.file_channel import Mailbox

SERVE = "import mlhood.grading.rpc.server as _bridge; _bridge.serve({folder!r}, {number})"
START_SECONDS = 60.0
LONGEST_ERROR = 500  # characters: it is said beside every check of its task
KEEP_RUNNING = "get_ipython().ask_exit = lambda: None"  # `exit()` and `quit()` would end the kernel some time later


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: what went wrong in words, or empty; and whether the kernel is still there."""

    error: str = ""
    alive: bool = True


class Kernel:
    """A Python kernel in a process of its own, whose working folder is `folder`. Use it in a `with` statement.

    A kernel that dies or hangs is replaced by a new one, and the cells that ran well so far are run again in it, so
    later tasks find what earlier ones have made.
    """

    client_class = NotebookClient

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._exchange = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        self._requests = 0
        self._history: list[str] = []
        self._client: NotebookClient | None = None
        self._loop = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)  # zmq needs it on Windows too

    @property
    def scratch(self) -> Path:
        """A folder that both sides can write."""
        return Path(self._exchange.name)

    def __enter__(self) -> Kernel:
        try:
            self._start()
        except BaseException:  # Ctrl-C too: a `with` that was not entered is not left either
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()
        self._loop.close()
        self._exchange.cleanup()

    def run(self, cell: NotebookNode, seconds: float) -> Outcome:
        """Run a cell and collect its outputs in it. A cell that kills the kernel costs only itself."""
        outcome = self._execute(cell, seconds)
        if outcome.alive:
            self._history.append(cell.source)
        else:
            self._revive(seconds)
        return outcome

    def ask(self, request: Message, seconds: float) -> Message:
        """Carry a request to the student's objects (see `submission.Transport`)."""
        self._requests += 1
        mailbox, number = Mailbox(self.scratch), self._requests
        try:
            mailbox.post("request", number, request)
            self._hand_over()
        except OSError as error:
            raise NoAnswer(f"the folder for requests has been damaged: {error.strerror}") from None
        cell = new_code_cell(SERVE.format(folder=str(self.scratch), number=number))
        outcome = self._execute(cell, seconds, store_history=False)  # does not count as a cell of the notebook
        if not outcome.alive:
            self._revive(seconds)
            raise NoAnswer(outcome.error)
        try:
            self._bring_back(mailbox.names("reply", number))
            return mailbox.collect("reply", number)
        except (OSError, WireError) as error:
            raise NoAnswer(outcome.error or str(error)) from None
        finally:
            self._forget([*mailbox.names("request", number), *mailbox.names("reply", number)])

    # -- what a kernel that shares no folder with us does otherwise

    def fetch(self, path: Path) -> None:
        """See that a file of the notebook's lies at its path on our side, where it is read."""

    def _hand_over(self) -> None:
        """See that the kernel finds what lies in `scratch`."""

    def _bring_back(self, names: list[str]) -> None:
        """See that we find what the kernel has put into `scratch` under these names."""

    def _forget(self, names: list[str]) -> None:
        """Make room: an exchange is over."""

    def _execute(self, cell: NotebookNode, seconds: float, *, store_history: bool = True) -> Outcome:
        client = self._client
        if client is None:
            return Outcome("was not run: there is no kernel any more", alive=False)
        # nbclient looks up by its own notebook which output an update is for
        client.nb.cells[0] = cell
        client._display_id_map.clear()
        client.timeout = math.ceil(seconds)  # nbclient takes whole seconds, and 0 for no limit
        try:
            self._wait(client.async_execute_cell(cell, 0, store_history=store_history))
        except CellTimeoutError:
            return Outcome(f"took more than {seconds:g} seconds and was stopped", alive=False)
        except DeadKernelError:
            return Outcome("ended the Python process (killed, out of memory, or an exit call)", alive=False)
        except CellControlSignal as error:
            return Outcome(str(error).splitlines()[-1])
        except Exception as error:  # a hostile kernel may send anything, and nbclient believes what it reads
            return Outcome(f"sent what is no Jupyter message ({type(error).__name__}) and was stopped", alive=False)
        return Outcome(_last_error(cell))

    def _revive(self, seconds: float) -> None:
        self._stop()
        self._start()
        for source in list(self._history):
            if not self._execute(new_code_cell(source), seconds).alive:
                self._history.remove(source)
                self._revive(seconds)
                return

    def _start(self) -> None:
        resources = {"metadata": {"path": str(self.folder)}}
        client = self.client_class(
            new_notebook(cells=[new_code_cell("")]),
            kernel_name="python3",
            allow_errors=True,
            shutdown_kernel="immediate",
            skip_cells_with_tag="mlhood: no cell is skipped",
            resources=resources,
        )
        try:
            self._wait(self._start_kernel(client))
        except Exception as error:  # whatever stops a kernel from starting ends here
            raise GradingError(
                "no Jupyter kernel could be started",
                where=self.folder,
                expected="a Python kernel in this environment",
                got=f"{type(error).__name__}: {error}",
                todo="run `mlhood doctor`, and install the course again if it says that ipykernel is missing",
            ) from None
        self._client = client
        self._execute(new_code_cell(KEEP_RUNNING), START_SECONDS, store_history=False)

    def _wait(self, work: Coroutine[Any, Any, Any]) -> None:
        # `Runner.run` would turn Ctrl-C into a cancellation, which nbclient takes for the death of the kernel.
        self._loop.get_loop().run_until_complete(work)

    async def _start_kernel(self, client: NotebookClient) -> None:
        for folder in (self.folder, self.scratch):  # a cell may have removed them before it ended its kernel
            folder.mkdir(parents=True, exist_ok=True)
        self._configure(client)
        await client.async_start_new_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await client.async_start_new_kernel_client()

    def _configure(self, client: NotebookClient) -> None:
        manager = client.create_kernel_manager()
        if hasattr(os, "killpg"):  # where sockets can be files, there need be no port that others could reach
            manager.transport, manager.ip = "ipc", str(self.scratch / "k")

    def _end_group(self, client: NotebookClient) -> None:
        group = getattr(getattr(client.km, "provisioner", None), "pgid", None)
        if group and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)  # the kernel's children too, which a polite shutdown leaves behind

    def _stop(self) -> None:
        client, self._client = self._client, None
        if client is None or client.km is None:
            return
        self._end_group(client)
        with contextlib.suppress(Exception):
            self._wait(_give_up())
            self._wait(client._async_cleanup_kernel())  # nbclient's only way to end kernel and channels


class Kernels(Protocol):
    """Where the kernel for a foreign notebook comes from: something that keeps it apart from us."""

    def kernel(self, folder: Path) -> Kernel:
        """A kernel for one notebook, whose files come to `folder`.

        Raises:
            GradingError: There is none to be had.
        """
        ...


async def _give_up() -> None:
    """End what an interruption or a time limit has left waiting, and hear it out, so that nothing is logged later."""
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _last_error(cell: NotebookNode) -> str:
    errors = [output for output in cell.outputs if output.output_type == "error"]
    return sentence(f"{errors[-1].ename}: {errors[-1].evalue}"[:LONGEST_ERROR]).rstrip(": ") if errors else ""
