"""The hardware as Windows reports it: kernel32 and the registry.

Source: Microsoft, `GetLogicalProcessorInformationEx` and `SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX`: records
of a header (relationship, size) and a body; relationship 2 is a cache.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

from mlhood.measure.machine.facts import CacheSizes, Hardware

_CACHE = 2
_INSTRUCTION = 1
_ALL_RELATIONS = 0xFFFF


def read() -> Hardware:
    """Query Windows for the hardware's facts; missing ones are unknown."""
    return Hardware(cpu=_name(), caches=parse_caches(_processor_records()))


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


def _name() -> str | None:
    if sys.platform != "win32":
        return None
    import winreg

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        return None
