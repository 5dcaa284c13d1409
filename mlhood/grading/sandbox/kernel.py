"""The kernel of an untrusted notebook: a `Kernel` in a sandbox, with limits on its messages, outputs and time.

A pool prewarms the next sandbox: it imports libraries while the previous one is in use.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionComplete
from nbformat import NotebookNode
from nbformat.v4 import new_output

from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import CellOutcome, Kernel
from mlhood.grading.rpc.transport import MAX_FETCHED_BYTES
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.channels import TOO_LARGE, KernelManager
from mlhood.grading.sandbox.limits import MIB, Limits
from mlhood.grading.sandbox.sandbox import Sandbox

POLL_SECONDS = 0.05
ALIVE_SECONDS = 0.1
NO_OUTPUT = "put out more at once than its channels carry, or closed them, and was stopped"
OUTPUT_SECONDS = 5  # by which outputs may arrive after the reply to their cell
# measured: what an output, a dictionary, a list and a number of it take in a notebook
OUTPUT_BYTES, DICTIONARY_BYTES, LIST_BYTES, NUMBER_BYTES = 1024, 512, 64, 32
MAX_OUTPUT_BYTES = 64 * MIB  # of all cells: outputs stay in the notebook, which is the grader's memory
OMITTED = f"The output of this cell is omitted: the notebook has put out more than {MAX_OUTPUT_BYTES // MIB} MiB.\n"
EXECUTION_COUNTS = range(1 << 31)
MAX_COLLECTED_BYTES = 256 * MIB  # of the files in the notebook's folder
IMPORTS = ("numpy", "pandas", "matplotlib.pyplot", "torch", "onnx", "onnxruntime", "mlhood.grading.rpc.server")
# modules of a bare kernel's first program
LAUNCHERS = ("mlhood.grading.sandbox.launcher", "mlhood.grading.sandbox.seccomp")
BARE_MEMORY = 3 << 30  # bytes; a notebook has several bare kernels


class BubblewrapProvisioner(KernelProvisionerBase):
    """Starts, signals and kills the kernel of a sandbox. Whoever has made the sandbox closes it."""

    sandbox: Sandbox

    @property
    def has_process(self) -> bool:
        """Whether there is a process."""
        return self.sandbox.started

    async def poll(self) -> int | None:
        """Return None while the kernel runs."""
        return self.sandbox.poll()

    async def wait(self) -> int | None:
        """Wait until it has ended, and clean up."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(POLL_SECONDS)
        self.sandbox.stop()
        return code

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel."""
        self.sandbox.send_signal(signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill all processes in the sandbox."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Kill all processes in the sandbox."""
        await self.send_signal(signal.SIGKILL)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Return no command: the sandbox has its own."""
        return {**await super().pre_launch(**kwargs), "cmd": []}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the sandbox unless it was prewarmed, and return the connection information of its kernel."""
        if not self.sandbox.started:
            self.sandbox.start()
        self.connection_info = cast(KernelConnectionInfo, self.sandbox.connect())
        return self.connection_info

    async def cleanup(self, restart: bool = False) -> None:
        """Do nothing."""


class _NotebookClient(NotebookClient):
    """Counts the output of a cell, and kills the sandbox if it is too much."""

    sandbox: Sandbox
    _cell: NotebookNode | None = None
    _cell_bytes = 0

    async def _async_poll_kernel_alive(self) -> None:
        """As nbclient's, which polls once a second: a class has many kernels that end."""
        while self.sandbox.poll() is None:
            await asyncio.sleep(ALIVE_SECONDS)
        if self.task_poll_for_reply is not None:
            self.task_poll_for_reply.cancel()

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        """Process a message of the kernel."""
        if cell is not self._cell:
            self._cell, self._cell_bytes = cell, 0
        self._cell_bytes += OUTPUT_BYTES + _size(msg["content"]) * self._outputs_updated_by(msg["content"])
        limit = self.sandbox.limits.output
        if self._cell_bytes > limit:
            self.sandbox.kill(f"put out more than {limit // MIB} MiB and was stopped")
            return None
        try:
            return super().process_message(msg, cell, cell_index)
        except CellExecutionComplete:
            raise
        except Exception as error:  # an error here would end the task that reads the kernel's messages
            self.sandbox.kill(f"sent an invalid Jupyter message ({type(error).__name__}) and was stopped")
            return None

    def _outputs_updated_by(self, content: Any) -> int:
        """Return how many outputs will show the content of a message: those with its display id, at least one."""
        transient = content.get("transient") if isinstance(content, dict) else None
        display_id = transient.get("display_id") if isinstance(transient, dict) else None
        outputs = self._display_id_map.get(display_id, {}) if isinstance(display_id, str) else {}
        return 1 + sum(map(len, outputs.values()))

    def handle_comm_msg(self, outs: list[NotebookNode], msg: dict[str, Any], cell_index: int) -> None:
        """Ignore widgets: they have no front end here, and their state would take memory."""


def _size(content: Any) -> int:
    """Return the memory that plain data take in a notebook, in bytes."""
    if isinstance(content, dict):
        return DICTIONARY_BYTES + sum(map(_size, content)) + sum(map(_size, content.values()))
    if isinstance(content, list):
        return LIST_BYTES + sum(map(_size, content))
    return sys.getsizeof(content) if isinstance(content, (str, int)) else NUMBER_BYTES


class SandboxedKernel(Kernel):
    """A kernel in a sandbox.

    Args:
        target: Folder to which the files in the notebook's folder are copied in the end.
        sandbox: One that is unused. It is closed in the end.
    """

    client_class = _NotebookClient

    def __init__(self, target: Path, sandbox: Sandbox) -> None:
        super().__init__(sandbox.folder)
        self.sandbox = sandbox
        self._target = target
        self._deadline = 0.0
        self._output_bytes = 0

    @property
    def pid(self) -> int | None:
        """The process of bubblewrap, from which all processes of the sandbox descend."""
        return self.sandbox.pid

    @property
    def scratch(self) -> Path:
        """A folder of the grader; its files are copied into the sandbox with the next request."""
        return self.sandbox.scratch

    def __enter__(self) -> SandboxedKernel:
        self._deadline = time.monotonic() + self.sandbox.limits.seconds
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.sandbox.copy_files(self._target, MAX_COLLECTED_BYTES)
            super().__exit__(*exception)
        finally:
            self.sandbox.close()

    def run(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        """Run a cell and store its outputs in it, until the limit for all outputs is reached."""
        outcome = super().run(cell, seconds)
        if type(cell.execution_count) is not int or cell.execution_count not in EXECUTION_COUNTS:
            cell.execution_count = None  # it is what the kernel says, of any size
        self._output_bytes += _size(cell.outputs) + OUTPUT_BYTES * len(cell.outputs)
        if self._output_bytes > MAX_OUTPUT_BYTES:
            cell.outputs = [new_output("stream", name="stderr", text=OMITTED)] if cell.outputs else []
        return outcome

    def fetch(self, path: Path, limit: int = MAX_FETCHED_BYTES) -> None:
        """Copy a file of the sandbox of at most `limit` bytes to the same path outside.

        Raises:
            InvalidFile: It is a link or a special file, or too large.
        """
        self.sandbox.download(path, limit)

    def _only_process(self) -> int | None:
        return self.sandbox.only_process

    def _upload(self) -> None:
        try:
            self.sandbox.upload()
        except OSError:  # the notebook has filled or damaged the folder
            self.sandbox.clear_scratch()
            self.sandbox.upload()

    def _discard(self, names: list[str]) -> None:
        self.sandbox.discard(names)

    def _execute(self, cell: NotebookNode, seconds: float, *, store_history: bool = True) -> CellOutcome:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            self._stop()
            used = f"the notebook has used its {self.sandbox.limits.seconds:g} seconds"
            return CellOutcome(f"was not run: {used}", alive=False)
        began, limit = time.monotonic(), min(seconds, remaining)
        outcome = super()._execute(cell, limit, store_history=store_history)
        reason = self.sandbox.reason
        if outcome.alive and not reason:  # the reply may arrive before the death of the sandbox is noticed
            return outcome
        if not reason and "more than" in outcome.error and time.monotonic() - began < limit:
            reason = NO_OUTPUT  # it replied in time, but its outputs did not arrive
        return replace(outcome, error=reason or outcome.error, alive=False)

    def _restart(self) -> None:
        if time.monotonic() < self._deadline:
            super()._restart()

    def _configure(self, client: NotebookClient) -> None:
        client.sandbox = self.sandbox  # pyright: ignore[reportAttributeAccessIssue]
        client.iopub_timeout, client.raise_on_iopub_timeout = OUTPUT_SECONDS, True
        client.kernel_manager_class = KernelManager
        manager: Any = client.create_kernel_manager()
        manager.on_too_large = lambda: self.sandbox.kill(TOO_LARGE)
        manager.provisioner = BubblewrapProvisioner(parent=manager, kernel_spec=manager.kernel_spec, kernel_id="")
        manager.provisioner.sandbox = self.sandbox

    def _kill_processes(self, client: NotebookClient) -> None:
        self.sandbox.stop()


class SandboxPool:
    """Provides sandboxes, each for one submission. Use it in a `with` statement, in one thread.

    Args:
        imports: Modules that a prewarmed sandbox imports.
        prewarm: Whether to start the next one when one is acquired. It takes the memory of its imports meanwhile.

    Raises:
        GradingError: Sandboxes are not available on this machine.
    """

    def __init__(
        self, limits: Limits | None = None, imports: tuple[str, ...] = IMPORTS, *, prewarm: bool = True
    ) -> None:
        require()
        self.limits = limits or Limits()
        self.imports = imports
        self.prewarm = prewarm
        self._next: dict[Libraries | None, Sandbox] = {}

    def __enter__(self) -> SandboxPool:
        if self.prewarm:
            self.start_next()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start_next(self, libraries: Libraries | None = None) -> Sandbox:
        """Start the next one unless it runs, without waiting for it.

        Args:
            libraries: Of a bare kernel; without them it becomes that of a notebook.
        """
        sandbox = self._next.get(libraries)
        if sandbox is None or sandbox.poll() is not None:
            if sandbox is not None:
                sandbox.close()
            sandbox = self._next[libraries] = self._new(libraries)
            sandbox.start()
        return sandbox

    def _new(self, libraries: Libraries | None) -> Sandbox:
        if libraries is None:
            return Sandbox(self.limits, self.imports)
        limits = replace(self.limits, memory=min(self.limits.memory, BARE_MEMORY))
        return Sandbox(limits, (), files_of(libraries, *LAUNCHERS))

    def acquire(self, libraries: Libraries | None = None) -> Sandbox:
        """Return an unused sandbox. The caller closes it."""
        sandbox = self.start_next(libraries)
        del self._next[libraries]
        if self.prewarm:
            self.start_next(libraries)
        return sandbox

    def kernel(self, folder: Path, libraries: Libraries | None = None) -> Kernel:
        """Return a kernel in a new sandbox, which begins to start."""
        return SandboxedKernel(folder, self.acquire(libraries))

    def close(self) -> None:
        """Close the prewarmed ones."""
        for sandbox in self._next.values():
            sandbox.close()
        self._next.clear()
