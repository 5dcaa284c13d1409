"""The machine a measurement was made on, as one record that travels with the result."""

from __future__ import annotations

import dataclasses
import platform
import sys
from typing import Any

from mlhood.measure import linux, macos, software, windows
from mlhood.measure.facts import Blas, Caches, Cores, Hardware, Memory, Vector
from mlhood.measure.vector import host_name, host_vector


@dataclasses.dataclass(frozen=True)
class Machine:
    """Processor, memory and libraries. Sizes are bytes; what is not known is None, never a guess."""

    cpu: str
    architecture: str
    cores: Cores
    vector: Vector
    caches: Caches
    memory: Memory
    system: str
    python: str
    blas: Blas
    versions: dict[str, str | None]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data (dicts, lists, numbers, strings, None) that goes into JSON as it is."""
        plain = dataclasses.asdict(self)
        plain["vector"]["sets"] = list(self.vector.sets)
        return plain

    def __str__(self) -> str:
        """One line for below a table of measurements."""
        sizes = {"L1d": self.caches.l1d, "L2": self.caches.l2, "L3": self.caches.l3}
        caches = ", ".join(f"{name} {binary_size(size)}" for name, size in sizes.items())
        return f"{self.cpu}, {describe_cores(self.cores)}, {describe_vector(self.vector)}, {caches}"


def machine() -> Machine:
    """Read the facts of the machine that this process runs on (about a tenth of a second, most of it NumPy).

    Threads and limits can change while a program runs, so nothing is remembered between calls.
    """
    architecture = platform.machine() or "unknown"
    hardware = _hardware()
    return Machine(
        cpu=hardware.cpu or host_name() or f"unknown {architecture} processor",
        architecture=architecture,
        cores=hardware.cores,
        vector=host_vector(architecture),
        caches=hardware.caches,
        memory=hardware.memory,
        system=software.system_name(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        blas=software.numpy_blas(),
        versions=software.versions(),
    )


def binary_size(size: int | None) -> str:
    """Return bytes in the largest unit that keeps at least one whole: `48 KiB`, `1.5 MiB`; or `unknown`."""
    if size is None:
        return "unknown"
    power = min(max(size.bit_length() - 1, 0) // 10, 4)
    return f"{size / 2 ** (10 * power):.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def describe_cores(cores: Cores) -> str:
    """Return the cores in words; what this process may use is said where it is less than all."""
    physical, logical = cores.physical, cores.logical
    text = "cores unknown" if physical is None else "1 core" if physical == 1 else f"{physical} cores"
    if logical is not None and logical != physical:
        text += f", {logical} hardware threads"
    if cores.usable is not None and cores.usable != logical:
        text += f", {cores.usable:g} usable here"
    return text


def describe_vector(vector: Vector) -> str:
    """Return the widest instruction set and its lanes in words."""
    if vector.float32_lanes is None:
        return "vector width unknown"
    return f"{vector.sets[0]} ({vector.float32_lanes} float32)"


def _hardware() -> Hardware:
    if sys.platform == "win32":
        return windows.read()
    if sys.platform == "darwin":
        return macos.read()
    return linux.read()
