"""A pool that prewarms the next sandbox: it imports libraries while the previous one is in use."""

from __future__ import annotations

from pathlib import Path

from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.kernel import SandboxedKernel
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.sandbox import Sandbox

IMPORTS = ("numpy", "pandas", "matplotlib.pyplot", "torch", "onnx", "onnxruntime", "mlhood.grading.rpc.server")


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
        self._next: Sandbox | None = None

    def __enter__(self) -> SandboxPool:
        if self.prewarm:
            self.start_next()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start_next(self) -> Sandbox:
        """Start the next one unless it runs, without waiting for it."""
        if self._next is None or self._next.poll() is not None:
            self.close()
            self._next = Sandbox(self.limits, self.imports)
            self._next.start()
        return self._next

    def acquire(self) -> Sandbox:
        """Return an unused sandbox. The caller closes it."""
        sandbox, self._next = self.start_next(), None
        if self.prewarm:
            self.start_next()
        return sandbox

    def kernel(self, folder: Path) -> Kernel:
        """Return a kernel in its own sandbox, whose files are copied to `folder` in the end."""
        return SandboxedKernel(folder, self.acquire)

    def close(self) -> None:
        """Close the prewarmed one."""
        if self._next is not None:
            self._next.close()
            self._next = None
