"""Kernels forked from one process that has imported the libraries, for tests that run dozens of notebooks.

Starting Python and importing torch, JAX, Numba and ONNX takes a kernel longer than most notebooks of the example
solutions.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import Kernel

ROOT = Path(__file__).parents[2]
IMPORTS = (
    "jax.numpy",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "mlhood.compiler.quantize",
    "mlhood.jaxlab",
    "mlhood.kernels.tables",
    "mlhood.grading.rpc.server",
    "numba",
    "onnxscript",
    "optax",
    "pandas",
    "sklearn.datasets",
    "torch._dynamo",
    "torch.onnx._internal.exporter._core",
)
SERVER = "from tests.grading.forked_kernel import serve; serve()"
# JAX starts threads with its first array, and threads do not survive a fork. Elsewhere libraries start some at once.
SUPPORTED = sys.platform == "linux"


class ForkServer:
    """A process that imports libraries once and becomes a kernel as often as it is asked to.

    Use it in a `with` statement. It inherits the environment at its start.
    """

    def __enter__(self) -> ForkServer:
        command = [sys.executable, "-c", SERVER]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def kernel(self, folder: Path, libraries: Libraries | None = None) -> Kernel:
        """Return a kernel for one notebook with this working folder; a bare one is started anew."""
        return Kernel(folder, libraries) if libraries else ForkedKernel(folder, self)

    def fork(self, connection_file: str, folder: str) -> int:
        """Start a kernel; return its process id."""
        request = json.dumps({"connection_file": connection_file, "folder": folder})
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        stdin.write(request.encode() + b"\n")
        stdin.flush()
        return int(stdout.readline())


class ForkedKernel(Kernel):
    """A kernel that a `ForkServer` starts."""

    def __init__(self, folder: Path, server: ForkServer) -> None:
        super().__init__(folder)
        self._server = server

    def _configure(self, client: NotebookClient) -> None:
        super()._configure(client)
        manager: Any = client.km
        manager.provisioner = _Provisioner(parent=manager, kernel_spec=manager.kernel_spec, kernel_id="")
        manager.provisioner.server = self._server


class _Provisioner(LocalProvisioner):
    server: ForkServer

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        manager: Any = self.parent
        self.pid = self.pgid = self.server.fork(manager.connection_file, str(kwargs["cwd"]))
        self.process = _Process(self.pid)
        return self.connection_info


class _Process:
    """What a provisioner needs of `subprocess.Popen`, for a process that is not our child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        return 0  # the fork server reaps its children

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def serve() -> None:
    """Import the libraries, then become a kernel for every request; end with the standard input."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as ipykernel, before pyplot reads it
    for name in IMPORTS:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended kernels leave no zombies
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become_kernel(**json.loads(line))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become_kernel(connection_file: str, folder: str) -> None:
    import numpy as np
    import torch
    from ipykernel import kernelapp

    os.setsid()
    os.chdir(folder)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    random.seed(0)  # the server's state differs in every run
    np.random.seed(0)  # noqa: NPY002 (what a notebook draws from)
    torch.manual_seed(0)
    application: Any = kernelapp
    application.launch_new_instance(argv=["-f", connection_file, "--HistoryManager.hist_file=:memory:"])
    os._exit(0)
