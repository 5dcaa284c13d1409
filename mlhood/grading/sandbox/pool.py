"""A source of sandboxes that has the next one ready: its imports pass while the one before it works."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.sandbox.bubblewrap import require
from mlhood.grading.sandbox.limits import Limits
from mlhood.grading.sandbox.sandbox import Sandbox

COURSE = ("numpy", "pandas", "matplotlib.pyplot", "torch", "onnx", "onnxruntime", "mlhood", "mlhood.grading.rpc.server")


class Sandboxes:
    """Gives out sandboxes, each for one submission. Use it in a `with` statement, in one thread.

    Args:
        limits: What each may use.
        imports: Modules that the next one loads ahead.
        warm: Whether to start the next one when one is taken. It holds the memory of its imports meanwhile.

    Raises:
        GradingError: There can be no sandbox on this machine.
    """

    def __init__(self, limits: Limits | None = None, imports: tuple[str, ...] = COURSE, *, warm: bool = True) -> None:
        require()
        self.limits = limits or Limits()
        self.imports = imports
        self.warm = warm
        self._next: Sandbox | None = None

    def __enter__(self) -> Sandboxes:
        if self.warm:
            self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def prepare(self) -> None:
        """Start the next one, if there is none yet; does not wait for it."""
        if self._next is None or self._next.poll() is not None:
            self.close()
            self._next = Sandbox(self.limits, self.imports)
            self._next.start()

    def take(self) -> Sandbox:
        """A sandbox that nobody has used. Who takes it closes it."""
        self.prepare()
        taken, self._next = self._next, None
        if self.warm:
            self.prepare()
        if taken is None:
            raise RuntimeError("prepare leaves a sandbox")
        return taken

    def kernel(self, folder: Path) -> Kernel:
        """A kernel in a sandbox of its own, whose files are copied to `folder` in the end."""
        from mlhood.grading.sandbox.kernel import SandboxedKernel  # which takes its sandboxes from here

        return SandboxedKernel(folder, self)

    def close(self) -> None:
        """End the one that waits."""
        if self._next is not None:
            self._next.close()
            self._next = None
