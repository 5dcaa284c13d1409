"""The machine as plain, frozen records, and as text. Sizes are bytes; `None` means unknown, nothing is guessed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CacheSizes:
    """The caches that one core sees, in bytes: its private first and second level, the third as far as shared."""

    l1d: int | None = None
    l2: int | None = None
    l3: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class Cores:
    """How many cores there are, and how many this process may use.

    `usable` counts processors: the smaller of the affinity mask and the control group's quota. A quota may be a
    fraction, such as 1.5.
    """

    physical: int | None = None
    logical: int | None = None
    usable: float | None = None


@dataclass(frozen=True)
class MainMemory:
    """Main memory in bytes; `limit` is the control group's, where it is below `total`."""

    total: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Vector:
    """Vector instruction sets, widest first, and how many float32 a register of the widest holds."""

    sets: tuple[str, ...] = ()
    float32_lanes: int | None = None


@dataclass(frozen=True)
class Blas:
    """The library that NumPy multiplies matrices with, its number of threads, and the kernels it chose.

    `kernel` is the processor that these are written for, often an older one than this, and `float32_lanes` is how many
    float32 their vectors hold.
    """

    library: str | None = None
    version: str | None = None
    threads: int | None = None
    kernel: str | None = None
    float32_lanes: int | None = None

    def __str__(self) -> str:
        """Such as `openblas 0.3.31 for Haswell (8 float32)`."""
        text = f"{self.library or 'unknown'} {self.version or ''}".strip()
        if self.kernel is not None:
            text += f" for {self.kernel}"
        return text if self.float32_lanes is None else f"{text} ({self.float32_lanes} float32)"


@dataclass(frozen=True)
class Hardware:
    """What an operating system reports beyond what psutil reads.

    `quotas` are the numbers of processors, and `limits` the bytes of memory, that control groups leave this process.
    """

    cpu: str | None = None
    caches: CacheSizes = CacheSizes()
    quotas: tuple[float, ...] = ()
    limits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Machine:
    """Processor, memory and libraries."""

    cpu: str
    architecture: str
    cores: Cores
    vector: Vector
    caches: CacheSizes
    memory: MainMemory
    system: str
    python: str
    blas: Blas
    versions: dict[str, str | None]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data: dicts, lists, numbers, strings, None."""
        data = dataclasses.asdict(self)
        data["vector"]["sets"] = list(self.vector.sets)
        return data

    def __str__(self) -> str:
        """One line to print below a table of measurements."""
        sizes = {"L1d": self.caches.l1d, "L2": self.caches.l2, "L3": self.caches.l3}
        caches = ", ".join(f"{name} {binary_size(size)}" for name, size in sizes.items())
        return f"{self.cpu}, {describe_cores(self.cores)}, {describe_vector(self.vector)}, {caches}"


def binary_size(size: int | None) -> str:
    """Format bytes in the largest binary unit that gives at least 1: `48 KiB`, `1.5 MiB`; `unknown` for None."""
    if size is None:
        return "unknown"
    power = min(max(size.bit_length() - 1, 0) // 10, 4)
    return f"{size / 2 ** (10 * power):.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def describe_cores(cores: Cores) -> str:
    """Describe the cores; the number usable by this process is included where it is smaller."""
    physical, logical = cores.physical, cores.logical
    text = "cores unknown" if physical is None else "1 core" if physical == 1 else f"{physical} cores"
    if logical is not None and logical != physical:
        text += f", {logical} hardware threads"
    if cores.usable is not None and cores.usable != logical:
        text += f", {cores.usable:g} usable here"
    return text


def describe_vector(vector: Vector) -> str:
    """Describe the widest instruction set and its lanes."""
    if vector.float32_lanes is None:
        return "vector width unknown"
    return f"{vector.sets[0]} ({vector.float32_lanes} float32)"
