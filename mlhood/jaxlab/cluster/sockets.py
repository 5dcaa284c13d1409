"""Bytes that this process has sent over TCP: the kernel's count for each open connection.

Linux keeps them in struct tcp_info (include/uapi/linux/tcp.h: tcpi_bytes_sent and tcpi_bytes_retrans, since 4.19).
They count the payload, without headers, and no other traffic, unlike the counters of a network interface.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_COUNTERS = struct.Struct("@QQ")  # bytes_sent, bytes_retrans
_OFFSET = 200
_MAX_SIZE = 512


def bytes_sent() -> int | None:
    """Return the bytes that this process's open TCP connections have sent, or None if the system does not count them.

    The difference of two calls is what was sent in between, if no connection was closed.
    """
    if not _DESCRIPTORS.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    total = 0
    for descriptor in _DESCRIPTORS.iterdir():
        with contextlib.suppress(OSError):
            count = _bytes_sent(descriptor)
            if count is None:
                return None
            total += count
    return total


def _bytes_sent(descriptor: Path) -> int | None:
    """Return the bytes sent through a descriptor; 0 if it is not a TCP connection, None for a kernel before 4.19."""
    if not str(descriptor.readlink()).startswith("socket:"):
        return 0
    with socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return 0
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MAX_SIZE)
    if len(info) < _OFFSET + _COUNTERS.size:
        return None
    sent, retransmitted = _COUNTERS.unpack_from(info, _OFFSET)
    return sent - retransmitted
