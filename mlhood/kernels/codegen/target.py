"""What a processor offers to kernels: lanes, registers and instructions, for this machine or another one."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from dataclasses import dataclass, replace

import llvmlite.binding as llvm

# Linux saves the content of tiles only for processes that request it: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA = 158, 0x1023, 18


@dataclass(frozen=True)
class Target:
    """A processor to generate kernels for.

    Args:
        name: `amx`, `avx512`, `avx2`, `neon` or `portable`.
        triple: LLVM's target triple; empty for this machine's.
        cpu: LLVM's name of the processor.
        features: LLVM's feature string: `+avx2,-avx512f`.
        lanes: float32 per vector register.
        registers: Number of vector registers.
        masked: Whether it has masked vector loads and stores.
        dot: Whether it has a dot product of four bytes per lane (VNNI).
        constraint: LLVM's letter for a vector register in inline assembly; empty if there is none.
        tiles: Whether it multiplies tiles of bytes (AMX), and this process may use them.
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int
    masked: bool = False
    dot: bool = False
    constraint: str = ""
    tiles: bool = False


PORTABLE = Target("portable", "", "", "", lanes=4, registers=16)
AARCH64 = Target("neon", "aarch64-unknown-linux-gnu", "generic", "+neon", lanes=4, registers=32, constraint="w")


@functools.cache
def host() -> Target:
    """Return the fastest target that this machine can run."""
    return available()[0]


@functools.cache
def available() -> tuple[Target, ...]:
    """Return all targets that this machine can run, the fastest first."""
    cpu, host_features = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    features = ",".join(f"{'+' if present else '-'}{name}" for name, present in sorted(host_features.items()))
    targets = []
    if host_features.get("avx512f") and host_features.get("avx512vl"):
        dot = host_features.get("avx512vnni", False)
        avx512 = Target("avx512", "", cpu, features, lanes=16, registers=32, masked=True, dot=dot, constraint="v")
        if dot and host_features.get("amx-tile") and host_features.get("amx-int8") and _tiles_are_permitted():
            targets.append(replace(avx512, name="amx", tiles=True))
        targets.append(avx512)
    if host_features.get("avx2") and host_features.get("fma"):
        targets.append(Target("avx2", "", "haswell", "", lanes=8, registers=16, constraint="x"))
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        targets.append(Target("neon", "", cpu, features, lanes=4, registers=32, constraint="w"))
    return (*targets, PORTABLE)


def _tiles_are_permitted() -> bool:
    """Ask Linux to let this process, all its threads and its later children use tiles; elsewhere nobody may."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    libc = ctypes.CDLL(None)
    return libc.syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XTILEDATA) == 0
