"""The machine that a measurement was made on: operating system and libraries in, one `Machine` record out."""

from __future__ import annotations

import platform

from mlhood.measure.machine import hardware, software
from mlhood.measure.machine.facts import Cores, Machine, MainMemory, binary_size, describe_cores, describe_vector

__all__ = ["Machine", "binary_size", "describe_cores", "describe_vector", "machine"]


def machine() -> Machine:
    """Read the facts of the machine that this process runs on (about a tenth of a second, most of it NumPy).

    Nothing is cached: threads and limits can change while a program runs.
    """
    import psutil

    architecture = platform.machine() or "unknown"
    found = hardware.read()
    logical, process, total = psutil.cpu_count(), psutil.Process(), psutil.virtual_memory().total
    allowed = len(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else logical  # macOS has no affinity
    usable = [count for count in (allowed, *found.quotas) if count is not None]
    limits = [limit for limit in found.limits if limit < total]
    return Machine(
        cpu=found.cpu or hardware.host_name() or f"unknown {architecture} processor",
        architecture=architecture,
        cores=Cores(psutil.cpu_count(logical=False), logical, min(usable, default=None)),
        vector=hardware.vector(hardware.host_features(), architecture),
        caches=found.caches,
        memory=MainMemory(total, min(limits, default=None)),
        system=platform.platform(terse=True),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        blas=software.numpy_blas(),
        versions=software.versions(),
    )
