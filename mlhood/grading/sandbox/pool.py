"""A pool that prewarms the next sandbox: it imports libraries while the previous one is in use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlhood.grading.bare.files import files_of
from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.kernel import SandboxedKernel
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.sandbox import Sandbox

IMPORTS = ("numpy", "pandas", "matplotlib.pyplot", "torch", "onnx", "onnxruntime", "mlhood.grading.rpc.server")
# modules of a bare kernel's first program
LAUNCHERS = ("mlhood.grading.sandbox.launcher", "mlhood.grading.sandbox.seccomp")
BARE_MEMORY = 3 << 30  # bytes; a notebook has several bare kernels


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
