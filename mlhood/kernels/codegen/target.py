"""What a processor offers to kernels: lanes, registers and instructions, for this machine or another one."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """A processor to generate kernels for.

    Args:
        name: `avx512`, `avx2`, `neon` or `portable`.
        triple: LLVM's target triple; empty for this machine's.
        cpu: LLVM's name of the processor.
        features: LLVM's feature string: `+avx2,-avx512f`.
        lanes: float32 per vector register.
        registers: Number of vector registers.
        masked: Whether it has masked vector loads and stores.
        dot: Whether it has a dot product of four bytes per lane (VNNI).
        constraint: LLVM's letter for a vector register in inline assembly; empty if there is none.
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


PORTABLE = Target("portable", "", "", "", lanes=4, registers=16)
AARCH64 = Target("neon", "aarch64-unknown-linux-gnu", "generic", "+neon", lanes=4, registers=32, constraint="w")


@functools.cache
def host() -> Target:
    """Return the target with this machine's widest vectors."""
    return available()[0]


@functools.cache
def available() -> tuple[Target, ...]:
    """Return all targets that this machine can run, widest vectors first."""
    cpu, host_features = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    features = ",".join(f"{'+' if present else '-'}{name}" for name, present in sorted(host_features.items()))
    targets = []
    if host_features.get("avx512f") and host_features.get("avx512vl"):
        dot = host_features.get("avx512vnni", False)
        wide = Target("avx512", "", cpu, features, lanes=16, registers=32, masked=True, dot=dot, constraint="v")
        targets.append(wide)
    if host_features.get("avx2") and host_features.get("fma"):
        targets.append(Target("avx2", "", "haswell", "", lanes=8, registers=16, constraint="x"))
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        targets.append(Target("neon", "", cpu, features, lanes=4, registers=32, constraint="w"))
    return (*targets, PORTABLE)
