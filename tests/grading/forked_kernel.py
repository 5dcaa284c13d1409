"""Kernels forked from one process that has imported the libraries, for tests that run dozens of notebooks.

Starting Python and importing torch, JAX, Numba and ONNX takes a kernel longer than most notebooks of the example
solutions.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

from mlhood.grading.bare.libraries import Libraries
from mlhood.grading.execution.kernel import INLINE, Kernel

ROOT = Path(__file__).parents[2]
IMPORTS = (
    "jax.numpy",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "mlhood.compiler.quantize",
    "mlhood.jaxlab",
    "mlhood.kernels.tables",
    "mlhood.grading.rpc.cell_runner",
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
        self._socket, end = socket.socketpair()
        with end:
            self._process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=end.fileno(), cwd=ROOT)
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()
        self._process.wait()

    def kernel(self, folder: Path, libraries: Libraries | None = None) -> Kernel:
        """Return a kernel for one notebook with this working folder; a bare one is started anew."""
        return Kernel(folder, libraries) if libraries else ForkedKernel(folder, self)

    def fork(self, folder: Path) -> tuple[int, IO[bytes], IO[bytes]]:
        """Start a kernel; return its process id, and the pipes to it and from it."""
        (requests, sent), (received, replies) = os.pipe(), os.pipe()
        socket.send_fds(self._socket, [str(folder).encode()], [requests, replies])
        for end in (requests, replies):
            os.close(end)
        return int(self._socket.recv(64)), os.fdopen(sent, "wb"), os.fdopen(received, "rb")


class ForkedKernel(Kernel):
    """A kernel that a `ForkServer` starts."""

    def __init__(self, folder: Path, server: ForkServer) -> None:
        super().__init__(folder)
        self._server = server
        self._forked: int | None = None

    @property
    def pid(self) -> int | None:
        return self._forked

    def _launch(self) -> tuple[IO[bytes], IO[bytes]]:
        self._forked, *pipes = self._server.fork(self.folder)
        return pipes[0], pipes[1]

    def _kill(self) -> None:
        if self._forked is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._forked, signal.SIGKILL)


def serve() -> None:
    """Import the libraries, then become a kernel for every request; end with the standard input."""
    os.environ["MPLBACKEND"] = INLINE  # before pyplot reads it
    for name in IMPORTS:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended kernels leave no zombies
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            folder, pipes, _, _ = socket.recv_fds(requests, 4096, 2)
            if not folder:
                return
            pid = os.fork()
            if pid == 0:
                requests.close()
                _become_kernel(folder.decode(), *pipes)
            for pipe in pipes:
                os.close(pipe)
            requests.send(str(pid).encode())


def _become_kernel(folder: str, requests: int, replies: int) -> None:
    import numpy as np
    import torch

    from mlhood.grading.rpc import cell_runner

    os.setsid()
    os.chdir(folder)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(requests, 0)
    os.dup2(replies, 1)
    random.seed(0)  # the server's state differs in every run
    np.random.seed(0)  # noqa: NPY002 (what a notebook draws from)
    torch.manual_seed(0)
    cell_runner.run()
