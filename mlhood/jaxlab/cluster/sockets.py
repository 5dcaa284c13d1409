"""Bytes that this process has sent over TCP: the kernel's own count, of each connection that is open.

Linux keeps them in struct tcp_info (include/uapi/linux/tcp.h: tcpi_bytes_sent and tcpi_bytes_retrans, since 4.19).
They count what was handed to TCP, without headers, and nobody else's traffic, as those of an interface would.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path

_OPEN = Path("/proc/self/fd")
_SENT = struct.Struct("@QQ")  # bytes_sent, bytes_retrans
_PLACE = 200
_LONGEST = 512


def sent() -> int | None:
    """Return the bytes that the open TCP connections of this process have sent, or None where the system cannot say.

    The difference of two calls is what was sent between them, if no connection was closed.
    """
    if not _OPEN.is_dir() or not hasattr(socket, "TCP_INFO"):
        return None
    total = 0
    for one in _OPEN.iterdir():
        with contextlib.suppress(OSError):
            count = _of(one)
            if count is None:
                return None
            total += count
    return total


def _of(descriptor: Path) -> int | None:
    """Return what one descriptor has sent; 0 if it is no TCP connection, None for a kernel before 4.19."""
    if not str(descriptor.readlink()).startswith("socket:"):
        return 0
    with socket.socket(fileno=os.dup(int(descriptor.name))) as one:
        internet = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
        if not internet:
            return 0
        info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LONGEST)
    if len(info) < _PLACE + _SENT.size:
        return None
    count, again = _SENT.unpack_from(info, _PLACE)
    return count - again
