"""The hardware as Linux reports it: files under /proc and /sys.

Sources: the kernel's documentation of `/sys/devices/system/cpu` (ABI/stable/sysfs-devices-system-cpu) and of
control groups (version 2: `cpu.max`, `memory.max`; version 1: `cpu.cfs_quota_us`, `memory.limit_in_bytes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mlhood.measure.machine.facts import CacheSizes, Hardware

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def read(root: Path = Path("/")) -> Hardware:
    """Read the hardware's facts from the files under `root`; facts without a file are unknown."""
    groups = parse_cgroups(_text(root / "proc/self/cgroup"))
    return Hardware(
        cpu=parse_cpuinfo(_text(root / "proc/cpuinfo")),
        caches=read_caches(root),
        quotas=tuple(cpu_quotas(root, groups)),
        limits=tuple(memory_limits(root, groups)),
    )


def parse_cpuinfo(text: str) -> str | None:
    """Return the processor's name from /proc/cpuinfo; ARM kernels do not print one."""
    match = re.search(r"^model name\s*:\s*(\S.*)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def parse_size(text: str) -> int | None:
    """Return bytes for sysfs' `48K`, `32768K` or `8M`; None for anything else."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(match.group(1)) * _UNITS[match.group(2)] if match else None


def parse_cgroups(text: str) -> dict[str, str]:
    """Return controller -> path from /proc/self/cgroup; version 2's single hierarchy has the name ``""``."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    return {name: path for _, names, path in rows for name in names.split(",")}


def parse_cpu_max(text: str) -> float | None:
    """Return the number of processors for `quota period` (both in microseconds); None without a quota."""
    match = re.fullmatch(r"(\d+)\s+(\d+)", text.strip())
    return int(match.group(1)) / int(match.group(2)) if match and int(match.group(2)) else None


def cpu_quotas(root: Path, groups: dict[str, str]) -> Iterator[float]:
    """Yield the processor quotas of this process's control group and its ancestors."""
    for level in _levels(root, groups, "cpu"):
        legacy = f"{_text(level / 'cpu.cfs_quota_us').strip()} {_text(level / 'cpu.cfs_period_us').strip()}"
        for quota in (parse_cpu_max(_text(level / "cpu.max")), parse_cpu_max(legacy)):
            if quota is not None:
                yield quota


def memory_limits(root: Path, groups: dict[str, str]) -> Iterator[int]:
    """Yield the memory limits in bytes of this process's control group and its ancestors."""
    for level in _levels(root, groups, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = parse_size(_text(level / name))
            if limit is not None:
                yield limit


def read_caches(root: Path) -> CacheSizes:
    """Return the data and unified caches of processor 0."""
    caches: dict[str, int | None] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "type").strip() == "Instruction":
            continue
        caches[_text(index / "level").strip()] = parse_size(_text(index / "size"))
        caches.setdefault("line", parse_size(_text(index / "coherency_line_size")))
    return CacheSizes(caches.get("1"), caches.get("2"), caches.get("3"), caches.get("line"))


def _levels(root: Path, groups: dict[str, str], controller: str) -> Iterator[Path]:
    """Yield the folders of a control group and of its ancestors; a limit on any of them applies."""
    for name in ("", controller):
        if name not in groups:
            continue
        base = root / "sys/fs/cgroup" / name
        inner = Path(groups[name].strip("/"))
        yield from (base / folder for folder in (inner, *inner.parents))


def _text(path: Path) -> str:
    """Return a file's text, empty if the kernel or a container hides the file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
