"""The hardware as the operating system reports it, and LLVM's features of the host.

Sources: Linux: the kernel's documentation of `/sys/devices/system/cpu` (ABI/stable/sysfs-devices-system-cpu) and of
control groups (version 2: `cpu.max`, `memory.max`). macOS: Apple, "Determining system capabilities" (the `hw.perflevel`
keys of `sysctl`). Windows: Microsoft, `GetLogicalProcessorInformationEx` and `SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX`:
records of a header (relationship, size) and a body; relationship 2 is a cache.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from mlhood.measure.machine.facts import CacheSizes, Hardware, Vector

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_CACHE = 2
_INSTRUCTION = 1
_ALL_RELATIONS = 0xFFFF
# LLVM's feature -> common name and float32 lanes of a register, widest first.
# Scalable vectors (SVE) have no fixed width; the generated code uses NEON on such a processor.
_SETS: dict[str, tuple[str, int | None]] = {
    "avx512f": ("AVX-512", 16),
    "avx2": ("AVX2", 8),
    "avx": ("AVX", 8),
    "sse4.2": ("SSE4.2", 4),
    "sse2": ("SSE2", 4),
    "neon": ("NEON", 4),
    "sve": ("SVE", None),
}
_ARM64 = {"aarch64", "arm64"}


def read() -> Hardware:
    """Read the facts of this machine; those that the system does not tell are unknown."""
    return {"win32": read_windows, "darwin": read_macos}.get(sys.platform, read_linux)()


# -- Linux: files under /proc and /sys


def read_linux(root: Path = Path("/")) -> Hardware:
    """Read the hardware's facts from the files under `root`; facts without a file are unknown."""
    groups = list(_control_groups(root))
    quotas, limits = ([_text(group / name) for group in groups] for name in ("cpu.max", "memory.max"))
    return Hardware(
        cpu=parse_cpuinfo(_text(root / "proc/cpuinfo")),
        caches=read_caches(root),
        quotas=tuple(quota for text in quotas if (quota := parse_cpu_max(text)) is not None),
        limits=tuple(limit for text in limits if (limit := parse_size(text)) is not None),
    )


def parse_cpuinfo(text: str) -> str | None:
    """Return the processor's name from /proc/cpuinfo; ARM kernels do not print one."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def parse_size(text: str) -> int | None:
    """Return bytes for sysfs' `48K`, `32768K` or `8M`; None for anything else."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(match.group(1)) * _UNITS[match.group(2)] if match else None


def parse_cpu_max(text: str) -> float | None:
    """Return the number of processors for `quota period` (both in microseconds); None without a quota."""
    match = re.fullmatch(r"(\d+)\s+(\d+)", text.strip())
    return int(match.group(1)) / int(match.group(2)) if match and int(match.group(2)) else None


def read_caches(root: Path) -> CacheSizes:
    """Return the data and unified caches of processor 0."""
    caches: dict[str, int | None] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "type").strip() == "Instruction":
            continue
        caches[_text(index / "level").strip()] = parse_size(_text(index / "size"))
        caches.setdefault("line", parse_size(_text(index / "coherency_line_size")))
    return CacheSizes(caches.get("1"), caches.get("2"), caches.get("3"), caches.get("line"))


def _control_groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control group and of its ancestors; a limit on any of them applies."""
    if found := re.search(r"^0::/(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE):
        inner = Path(found[1])
        yield from (root / "sys/fs/cgroup" / folder for folder in (inner, *inner.parents))


def _text(path: Path) -> str:
    """Return a file's text, empty if the kernel or a container hides the file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# -- macOS: `sysctl`


def read_macos() -> Hardware:
    """Query `sysctl` for the hardware's facts; missing ones are unknown."""
    try:
        result = subprocess.run(
            ["/usr/sbin/sysctl", "hw", "machdep.cpu"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Hardware()
    return parse_sysctl(result.stdout)


def parse_sysctl(text: str) -> Hardware:
    """Parse lines of `key: value`.

    Apple's processors have two kinds of cores; the caches are those of the performance cores, `hw.perflevel0`.
    """
    rows = [line.partition(":") for line in text.splitlines()]
    values = {key.strip(): value.strip() for key, _, value in rows}

    def number(*names: str) -> int | None:
        texts = (values.get(name, "") for name in names)
        return next((int(text) for text in texts if text.isdigit() and int(text) > 0), None)

    return Hardware(
        cpu=values.get("machdep.cpu.brand_string") or None,
        caches=CacheSizes(
            l1d=number("hw.perflevel0.l1dcachesize", "hw.l1dcachesize"),
            l2=number("hw.perflevel0.l2cachesize", "hw.l2cachesize"),
            l3=number("hw.perflevel0.l3cachesize", "hw.l3cachesize"),
            line=number("hw.cachelinesize"),
        ),
    )


# -- Windows: kernel32


def read_windows() -> Hardware:
    """Query Windows for the hardware's facts; missing ones are unknown."""
    return Hardware(caches=parse_caches(_processor_records()))


def parse_caches(records: bytes) -> CacheSizes:
    """Return the first data or unified cache of each level, in bytes."""
    caches: dict[int, int] = {}
    line = None
    for relation, body in _bodies(records):
        if relation != _CACHE or len(body) < 12:
            continue
        level, _, width, size, kind = struct.unpack_from("<BBHII", body)
        if kind != _INSTRUCTION:
            caches.setdefault(level, size)
            line = line or width
    return CacheSizes(caches.get(1), caches.get(2), caches.get(3), line)


def _bodies(records: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 8 <= len(records):
        relation, size = struct.unpack_from("<II", records, offset)
        if size < 8:
            return
        yield relation, records[offset + 8 : offset + size]
        offset += size


def _processor_records() -> bytes:
    if sys.platform != "win32":
        return b""
    import ctypes

    query = ctypes.windll.kernel32.GetLogicalProcessorInformationEx
    size = ctypes.c_ulong(0)
    query(_ALL_RELATIONS, None, ctypes.byref(size))  # fails, and returns the size of the buffer
    buffer = ctypes.create_string_buffer(size.value)
    return buffer.raw if query(_ALL_RELATIONS, buffer, ctypes.byref(size)) else b""


# -- vector instruction sets: how many float32 a register holds


def vector(features: Mapping[str, bool], architecture: str) -> Vector:
    """Return the vector sets among LLVM's host features.

    NEON is part of the 64-bit ARM architecture (Arm ARM, A1.5: Advanced SIMD), so it is implied.
    """
    present = {name for name, enabled in features.items() if enabled}
    if architecture.lower() in _ARM64:
        present.add("neon")
    sets = [_SETS[name] for name in _SETS if name in present]
    widths = [lanes for _, lanes in sets if lanes is not None]
    return Vector(tuple(name for name, _ in sets), max(widths, default=None))


def host_features() -> dict[str, bool]:
    """Return LLVM's features of the host; empty if they are unknown."""
    try:
        from llvmlite import binding

        return dict(binding.get_host_cpu_features())
    except (ImportError, OSError, RuntimeError):
        return {}


def host_name() -> str | None:
    """Return LLVM's name of the host's microarchitecture, such as `znver5` or `apple-m2`."""
    try:
        from llvmlite import binding

        name = binding.get_host_cpu_name()
    except (ImportError, OSError, RuntimeError):
        return None
    return name if name and name != "generic" else None
