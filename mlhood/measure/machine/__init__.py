"""The machine that a measurement was made on: operating system and libraries in, one `Machine` record out."""

from __future__ import annotations

import platform
import sys

from mlhood.measure.machine import linux, macos, software, windows
from mlhood.measure.machine.facts import Machine, binary_size, describe_cores, describe_vector
from mlhood.measure.machine.vector import host_features, host_name, vector

__all__ = ["Machine", "binary_size", "describe_cores", "describe_vector", "machine"]


def machine() -> Machine:
    """Read the facts of the machine that this process runs on (about a tenth of a second, most of it NumPy).

    Nothing is cached: threads and limits can change while a program runs.
    """
    architecture = platform.machine() or "unknown"
    hardware = {"win32": windows.read, "darwin": macos.read}.get(sys.platform, linux.read)()
    return Machine(
        cpu=hardware.cpu or host_name() or f"unknown {architecture} processor",
        architecture=architecture,
        cores=hardware.cores,
        vector=vector(host_features(), architecture),
        caches=hardware.caches,
        memory=hardware.memory,
        system=software.system_name(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        blas=software.numpy_blas(),
        versions=software.versions(),
    )
