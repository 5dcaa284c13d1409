"""A kernel provisioner for Jupyter that starts the kernel in a sandbox, which the grader passes to it."""

from __future__ import annotations

import asyncio
import signal
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

from mlhood.grading.sandbox.sandbox import Sandbox

POLL_SECONDS = 0.05


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
