"""The kernel of an untrusted notebook: a `Kernel` in a sandbox, with limits on its outputs and time.

A pool prewarms the next sandbox: it imports libraries while the previous one is in use.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from nbformat import NotebookNode
from nbformat.v4 import new_output

from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import CellOutcome, Kernel
from mlhood.grading.rpc.transport import NoReply
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.limits import MIB, Limits
from mlhood.grading.sandbox.sandbox import Sandbox

# measured: what an output, a dictionary, a list and a number of it take in a notebook
OUTPUT_BYTES, DICTIONARY_BYTES, LIST_BYTES, NUMBER_BYTES = 1024, 512, 64, 32
MAX_OUTPUT_BYTES = 64 * MIB  # of all cells: outputs stay in the notebook, which is the grader's memory
OMITTED = f"The output of this cell is omitted: the notebook has put out more than {MAX_OUTPUT_BYTES // MIB} MiB.\n"
IMPORTS = ("numpy", "pandas", "matplotlib.pyplot", "torch", "onnx", "onnxruntime", "mlhood.grading.rpc.cell_runner")
# modules of a bare kernel's first program
LAUNCHERS = ("mlhood.grading.sandbox.launcher", "mlhood.grading.sandbox.seccomp")
BARE_MEMORY = 3 << 30  # bytes; a notebook has several bare kernels


def _size(content: Any) -> int:
    """Return the memory that plain data take in a notebook, in bytes."""
    if isinstance(content, dict):
        return DICTIONARY_BYTES + sum(map(_size, content)) + sum(map(_size, content.values()))
    if isinstance(content, list):
        return LIST_BYTES + sum(map(_size, content))
    return sys.getsizeof(content) if isinstance(content, (str, int)) else NUMBER_BYTES


class SandboxedKernel(Kernel):
    """A kernel in a sandbox: one that is unused, and is closed in the end."""

    def __init__(self, sandbox: Sandbox) -> None:
        super().__init__(sandbox.folder)
        self.sandbox = sandbox
        self._uploaded: dict[Path, tuple[int, int, int]] = {}  # inode, time and size of each file
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
            super().__exit__(*exception)
        finally:
            self.sandbox.close()

    def run(self, cell: NotebookNode, seconds: float) -> CellOutcome:
        """Run a cell and store its outputs in it, until the limit for all outputs is reached."""
        outcome = super().run(cell, seconds)
        self._output_bytes += _size(cell.outputs) + OUTPUT_BYTES * len(cell.outputs)
        if self._output_bytes > MAX_OUTPUT_BYTES:
            cell.outputs = [new_output("stream", name="stderr", text=OMITTED)] if cell.outputs else []
        return outcome

    def fetch(self, path: Path) -> None:
        """Copy a file of the sandbox to the same path outside.

        Raises:
            InvalidFile: See `transport.InvalidFile`.
        """
        self._copy(path, path)
        if path.exists():
            self._uploaded[path] = _version(path)

    def _only_process(self) -> int | None:
        return self.sandbox.only_process

    def _upload(self) -> None:
        """Copy new and changed files of `scratch` into the sandbox."""
        for path in sorted(self.scratch.iterdir()):
            if self._uploaded.get(path) != _version(path):
                self._call("write_fresh", str(path), path.read_bytes())
                self._uploaded[path] = _version(path)

    def _launch(self) -> tuple[IO[bytes], IO[bytes]]:
        """Start the sandbox unless it was prewarmed."""
        self._uploaded.clear()
        if not self.sandbox.started:
            self.sandbox.start()
        return self.sandbox.connect()

    def _kill(self) -> None:
        self.sandbox.kill()

    def _stop(self) -> None:
        self.sandbox.stop()
        super()._stop()

    def _ask(self, request: bytes, seconds: float, limit: int) -> bytes:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            self._stop()
            raise NoReply(f"was not run: the notebook has used its {self.sandbox.limits.seconds:g} seconds")
        try:
            return super()._ask(request, min(seconds, remaining), limit)
        except NoReply as error:
            raise NoReply(self.sandbox.reason or str(error)) from None

    def _restart(self) -> None:
        if time.monotonic() < self._deadline:
            super()._restart()


def _version(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


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

    def kernel(self, folder: Path, libraries: Libraries | None = None) -> Kernel:
        """Return a kernel in a new sandbox, which begins to start, and in which its working folder is."""
        sandbox = self.start_next(libraries)
        del self._next[libraries]
        if self.prewarm:
            self.start_next(libraries)
        return SandboxedKernel(sandbox)

    def close(self) -> None:
        """Close the prewarmed ones."""
        for sandbox in self._next.values():
            sandbox.close()
        self._next.clear()
