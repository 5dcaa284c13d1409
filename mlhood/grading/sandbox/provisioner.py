"""A kernel provisioner for Jupyter that starts the kernel in a sandbox.

The grader passes it a sandbox. Any other Jupyter program gets one by a kernelspec whose metadata have
`{"kernel_provisioner": {"provisioner_name": "mlhood-bubblewrap"}}`.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase
from traitlets import Int

from mlhood.grading.sandbox.limits import MIB, Limits
from mlhood.grading.sandbox.sandbox import Sandbox

POLL_SECONDS = 0.05


class BubblewrapProvisioner(KernelProvisionerBase):
    """Starts, signals and kills the kernel of a sandbox."""

    memory = Int(Limits().memory // MIB, config=True, help="MiB that all processes and files may use together")
    sandbox: Sandbox | None = None
    created_here = False

    @property
    def has_process(self) -> bool:
        """Whether there is a process."""
        return self.sandbox is not None and self.sandbox.started

    async def poll(self) -> int | None:
        """Return None while the kernel runs."""
        return 0 if self.sandbox is None else self.sandbox.poll()

    async def wait(self) -> int | None:
        """Wait until it has ended, and clean up."""
        while (code := await self.poll()) is None:
            await asyncio.sleep(POLL_SECONDS)
        if self.sandbox is not None:
            self.sandbox.stop()
        return code

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel."""
        if self.sandbox is not None:
            self.sandbox.send_signal(signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill all processes in the sandbox."""
        await self.send_signal(signal.SIGKILL)

    async def terminate(self, restart: bool = False) -> None:
        """Kill all processes in the sandbox."""
        await self.send_signal(signal.SIGKILL)

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Create a sandbox unless one was passed."""
        if self.sandbox is None:
            self.sandbox, self.created_here = Sandbox(Limits(memory=self.memory * MIB)), True
        return {**await super().pre_launch(**kwargs), "cmd": []}

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the sandbox unless it was prewarmed, and return the connection information of its kernel."""
        if self.sandbox is None:
            raise RuntimeError("pre_launch has not been called")
        if not self.sandbox.started:
            self.sandbox.start()
        self.connection_info = cast(KernelConnectionInfo, self.sandbox.connect())
        return self.connection_info

    async def cleanup(self, restart: bool = False) -> None:
        """Close a sandbox that was created here."""
        if self.sandbox is not None and self.created_here and not restart:
            self.sandbox.close()
