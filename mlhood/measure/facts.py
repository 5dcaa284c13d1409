"""What is known of a machine: plain, frozen records. `None` means unknown; nothing here is guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Caches:
    """The caches that one core sees, in bytes: its own first and second level, the third as far as shared."""

    l1d: int | None = None
    l2: int | None = None
    l3: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class Cores:
    """How many cores there are, and how many this process may use.

    `usable` is a number of processors: the smaller of the affinity mask and the control group's quota. A
    quota may be a fraction, such as 1.5.
    """

    physical: int | None = None
    logical: int | None = None
    usable: float | None = None


@dataclass(frozen=True)
class Memory:
    """Main memory in bytes; `limit` is the control group's, where it is below `total`."""

    total: int | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Vector:
    """Vector instruction sets, widest first, and how many float32 one register of the widest holds."""

    sets: tuple[str, ...] = ()
    float32_lanes: int | None = None


@dataclass(frozen=True)
class Blas:
    """The library that NumPy multiplies matrices with, and how many threads it takes."""

    library: str | None = None
    version: str | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Hardware:
    """What an operating system tells about the machine under it."""

    cpu: str | None = None
    cores: Cores = Cores()
    caches: Caches = Caches()
    memory: Memory = Memory()
