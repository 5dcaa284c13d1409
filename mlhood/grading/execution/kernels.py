"""The kernels of one notebook: one in which all of it runs, and bare ones in which its tasks are graded."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Task
from mlhood.grading.execution.kernel import CellOutcome, Kernel, NewKernel
from mlhood.grading.rpc.transport import InvalidFile

COPY = "import pathlib as _pathlib; _pathlib.Path({name!r}).write_bytes({data!r})"
COPY_SECONDS = 60.0
MAX_COPIED_BYTES = 1 << 20  # a small model, but no library


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
