"""The kernel of a foreign notebook: as `grading.kernel`, in a sandbox, with limits on what it says and how long."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.asynchronous.client import AsyncKernelClient
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from nbformat import NotebookNode
from nbformat.v4 import new_output
from traitlets import default

from mlhood.errors import GradingError
from mlhood.grading.checks.submission import MAX_FILE_BYTES as MAX_HANDED_IN
from mlhood.grading.checks.submission import BadFile, NoAnswer
from mlhood.grading.execution.kernel import Kernel, Outcome
from mlhood.grading.rpc.file_channel import MAX_FILE_BYTES
from mlhood.grading.sandbox.limits import MIB
from mlhood.grading.sandbox.pool import Sandboxes
from mlhood.grading.sandbox.provisioner import BubblewrapProvisioner
from mlhood.grading.sandbox.sandbox import Sandbox
from mlhood.grading.sandbox.untrusted_folder import NotPlain

LARGEST_MESSAGE = 16 * MIB
MESSAGES_WAITING = 32
"""What a message of a kernel may hold, and how many of them may wait: both are memory of ours."""
ALIVE_SECONDS = 0.1
UNHEARD = f"put out more than {LARGEST_MESSAGE // MIB} MiB at once, or closed its channels, and was stopped"
UNHEARD_SECONDS = 5  # that outputs may come after their cell
EMPTY_OUTPUT = 256  # bytes that an output takes beside its text
MAX_OUTPUTS = 64 * MIB  # of all cells: they stay in the notebook, which is memory of ours
LEFT_OUT = f"What this cell put out is left out: the notebook has put out more than {MAX_OUTPUTS // MIB} MiB.\n"
MAX_KEPT = 256 * MIB  # of what a notebook leaves in its folder


def _bound(context: zmq.asyncio.Context) -> zmq.asyncio.Context:
    context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
    context.setsockopt(zmq.RCVHWM, MESSAGES_WAITING)
    return context


class _Client(AsyncKernelClient):
    @default("context")
    def _context_default(self) -> zmq.asyncio.Context:
        self._created_context = True
        return _bound(zmq.asyncio.Context())


class _Notebook(NotebookClient):
    """Counts what a cell puts out, and ends the sandbox where that is too much."""

    sandbox: Sandbox
    _cell: NotebookNode | None = None
    _said = 0

    async def _async_poll_kernel_alive(self) -> None:
        """As nbclient's, which looks once a second: a class has many kernels that end."""
        while self.sandbox.poll() is None:
            await asyncio.sleep(ALIVE_SECONDS)
        if self.task_poll_for_reply is not None:
            self.task_poll_for_reply.cancel()

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        """Take in a message of the kernel."""
        if cell is not self._cell:
            self._cell, self._said = cell, 0
        if msg["msg_type"] != "status":
            self._said += EMPTY_OUTPUT + _size(msg["content"])
        most = self.sandbox.limits.output
        if self._said > most:
            self.sandbox.end(f"put out more than {most // MIB} MiB and was stopped")
            return None
        try:
            return super().process_message(msg, cell, cell_index)
        except CellExecutionComplete:
            raise
        except Exception as error:  # nobody would listen to the kernel from here on
            self.sandbox.end(f"sent what is no Jupyter message ({type(error).__name__}) and was stopped")
            return None

    def handle_comm_msg(self, outs: list[NotebookNode], msg: dict[str, Any], cell_index: int) -> None:
        """Widgets have nobody to talk to, and nothing of them is kept; what they show is text of the cell's."""


def _size(content: Any) -> int:
    if isinstance(content, dict):
        return sum(map(_size, content)) + sum(map(_size, content.values()))
    if isinstance(content, list):
        return sum(map(_size, content))
    return len(content) if isinstance(content, str) else 8


class SandboxedKernel(Kernel):
    """A kernel in a sandbox. What the notebook leaves in its folder is copied to `target` in the end."""

    client_class = _Notebook

    def __init__(self, target: Path, sandboxes: Sandboxes) -> None:
        super().__init__(target)
        self._target = target
        self._sandboxes = sandboxes
        self._sandbox: Sandbox | None = None
        self._deadline = 0.0
        self._shown = 0

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox; there is one inside of the `with` statement."""
        if self._sandbox is None:
            raise GradingError("the kernel has not been started", todo="use it in a `with` statement")
        return self._sandbox

    @property
    def scratch(self) -> Path:
        """A folder of ours: what is put here is copied into the sandbox with the next request."""
        return self.sandbox.scratch

    def __enter__(self) -> SandboxedKernel:
        self._sandbox = self._sandboxes.take()
        self.folder = self._sandbox.folder
        self._deadline = time.monotonic() + self._sandbox.limits.seconds
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if self._sandbox is not None:
                self._sandbox.collect(self._target, MAX_KEPT)
            super().__exit__(*exception)
        finally:
            if self._sandbox is not None:
                self._sandbox.close()

    def run(self, cell: NotebookNode, seconds: float) -> Outcome:
        """Run a cell and collect its outputs in it, as long as there is room for them."""
        outcome = super().run(cell, seconds)
        self._shown += _size(cell.outputs) + EMPTY_OUTPUT * len(cell.outputs)
        if self._shown > MAX_OUTPUTS:
            cell.outputs = [new_output("stream", name="stderr", text=LEFT_OUT)] if cell.outputs else []
        return outcome

    def fetch(self, path: Path) -> None:
        """Copy a file of the sandbox to the same path out here.

        Raises:
            BadFile: It is a link or a special file, or too large.
        """
        try:
            self.sandbox.bring(path, MAX_HANDED_IN)
        except NotPlain as error:
            raise BadFile(str(error)) from None

    def _hand_over(self) -> None:
        try:
            self.sandbox.give()
        except OSError:  # its folder has been filled or damaged
            self.sandbox.clear_scratch()
            self.sandbox.give()

    def _bring_back(self, names: list[str]) -> None:
        try:
            for name in names:
                self.sandbox.bring(self.scratch / name, MAX_FILE_BYTES)
        except NotPlain as error:
            raise NoAnswer(f"the reply {error}") from None

    def _forget(self, names: list[str]) -> None:
        self.sandbox.forget(names)

    def _execute(self, cell: NotebookNode, seconds: float, *, store_history: bool = True) -> Outcome:
        left = self._deadline - time.monotonic()
        if left <= 0:
            self._stop()
            return Outcome(f"was not run: the notebook's {self.sandbox.limits.seconds:g} seconds are over", alive=False)
        began, limit = time.monotonic(), min(seconds, left)
        outcome = super()._execute(cell, limit, store_history=store_history)
        reason = self.sandbox.reason
        if outcome.alive and not reason:  # its end may have been heard before that of the sandbox
            return outcome
        if not reason and "more than" in outcome.error and time.monotonic() - began < limit:
            reason = UNHEARD  # it has answered in time, and what it had to say did not come
        return replace(outcome, error=reason or outcome.error, alive=False)

    def _revive(self, seconds: float) -> None:
        if time.monotonic() < self._deadline:
            super()._revive(seconds)

    def _configure(self, client: NotebookClient) -> None:
        client.sandbox = self.sandbox  # pyright: ignore[reportAttributeAccessIssue]
        client.iopub_timeout, client.raise_on_iopub_timeout = UNHEARD_SECONDS, True
        manager: Any = client.create_kernel_manager()
        manager.client_factory = _Client
        manager.provisioner = BubblewrapProvisioner(parent=manager, kernel_spec=manager.kernel_spec, kernel_id="")
        manager.provisioner.sandbox = self.sandbox
        _bound(manager.context)

    def _end_group(self, client: NotebookClient) -> None:
        self.sandbox.stop()
