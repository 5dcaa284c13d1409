"""What a processor offers to a kernel: lanes, registers and instructions, of this machine or of another one."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True)
class Target:
    """A processor to write kernels for.

    Args:
        name: `avx512`, `avx2`, `neon` or `portable`.
        triple: LLVM's name of the architecture and system; empty for this machine's.
        cpu: LLVM's name of the processor.
        features: LLVM's list of what it has besides: `+avx2,-avx512f`.
        lanes: float32 numbers in one vector register.
        registers: Vector registers.
        masked: Whether it stores part of a register in one instruction.
        dot: Whether it multiplies and adds four bytes at a time (VNNI).
    """

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int
    masked: bool = False
    dot: bool = False

    @property
    def here(self) -> bool:
        """Whether kernels for it run on this machine."""
        return not self.triple


PORTABLE = Target("portable", "", "", "", lanes=4, registers=16)
AARCH64 = Target("neon", "aarch64-unknown-linux-gnu", "generic", "+neon", lanes=4, registers=32)


@functools.cache
def host() -> Target:
    """Return this machine, with the widest vectors that it has."""
    return next(target for target in available())


@functools.cache
def available() -> tuple[Target, ...]:
    """Return every kind of kernel that runs on this machine, the widest vectors first."""
    cpu, has = llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features())
    everything = ",".join(f"{'+' if there else '-'}{feature}" for feature, there in sorted(has.items()))
    found = []
    if has.get("avx512f") and has.get("avx512vl"):
        dot = has.get("avx512vnni", False)
        found.append(Target("avx512", "", cpu, everything, lanes=16, registers=32, masked=True, dot=dot))
    if has.get("avx2") and has.get("fma"):
        found.append(Target("avx2", "", "haswell", "", lanes=8, registers=16))
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        found.append(Target("neon", "", cpu, everything, lanes=4, registers=32))
    return (*found, PORTABLE)
