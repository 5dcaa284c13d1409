"""Read the numeric arrays of an npz that somebody else wrote.

What NumPy writes by `savez` and nothing else: a zip archive of stored members, one behind the other, each a `.npy` of
version 1.0. `zipfile` and `numpy.load` accept far more, of which some takes much memory: compressed members, members
that overlap, a directory of millions of names, headers that are evaluated. All sizes are checked before an array is
allocated.
"""

from __future__ import annotations

import math
import re
import struct

import numpy as np

END = struct.Struct("<4s4H2LH")
DIRECTORY_ENTRY = struct.Struct("<4s6H3L5H2L")
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
MEMBER = re.compile(rb"(\w{1,64})\.npy")
NPY_MAGIC = b"\x93NUMPY\x01\x00"
HEADER = re.compile(
    rb"\{'descr': '([<>|][biufc]\d{1,2})', 'fortran_order': (True|False), 'shape': \((|[\d, ]{1,400})\), \} *\n"
)
MAX_DIMENSIONS = 32
ENCRYPTED, STORED = 1, 0
OVERHEAD_BYTES = 1024
"""Bytes in the archive that belong to no element: of each array, and of the end."""


class NpzError(ValueError):
    """The data are not an npz of numeric arrays, or exceed a limit."""


def read_npz(data: bytes, *, max_bytes: int, max_arrays: int) -> dict[str, np.ndarray]:
    """Return the arrays by their names, as copies that can be written.

    Args:
        data: The archive.
        max_bytes: Largest sum of the arrays' sizes.
        max_arrays: Largest number of arrays.

    Raises:
        NpzError: It is malformed, compressed or too large.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, start, size in _members(data, max_bytes, max_arrays):
        if name in arrays:
            raise NpzError(f"two arrays are called {name!r}")
        arrays[name] = _read_array(memoryview(data)[start : start + size], max_bytes)
    return arrays


def _members(data: bytes, max_bytes: int, max_arrays: int) -> list[tuple[str, int, int]]:
    """Return the name, start and size of every member, of which none overlaps another."""
    directory = len(data) - END.size
    if directory < 0 or not data.startswith(b"PK\x05\x06", directory):
        raise NpzError("it does not end as an archive")
    _, *disks, count, total, size, offset, comment = END.unpack_from(data, directory)
    if any(disks) or comment or count != total or offset + size != directory:
        raise NpzError("its directory is damaged")
    if count > max_arrays:
        raise NpzError(f"more than {max_arrays:,} arrays")
    entries, position = [], offset
    for _ in range(count):
        entry = DIRECTORY_ENTRY.unpack_from(data, position)
        position += DIRECTORY_ENTRY.size
        name = data[position : position + entry[10]]
        position += sum(entry[10:13])  # of the name, extra data and a comment
        entries.append((entry, name))
    if sum(entry[9] for entry, _ in entries) > max_bytes + count * OVERHEAD_BYTES:
        raise NpzError(f"the arrays exceed the limit of {max_bytes >> 20} MiB")
    members, free = [], 0
    for entry, name in entries:
        start = _start_of(data, entry, name)
        if entry[16] < free or start + entry[9] > offset:
            raise NpzError("members overlap")
        free = start + entry[9]
        members.append((name.decode().removesuffix(".npy"), start, entry[9]))
    return members


def _start_of(data: bytes, entry: tuple, name: bytes) -> int:
    """Return where the data of a member begin."""
    signature, flags, method, packed, size, local = entry[0], *entry[3:5], *entry[8:10], entry[16]
    if signature != b"PK\x01\x02" or not MEMBER.fullmatch(name):
        raise NpzError("it has a member that is no array")
    if method != STORED or flags & ENCRYPTED or packed != size:
        raise NpzError("its arrays are compressed or encrypted")
    header = LOCAL_HEADER.unpack_from(data, local)
    start = local + LOCAL_HEADER.size
    if header[0] != b"PK\x03\x04" or data[start : start + header[9]] != name:
        raise NpzError("its directory does not match its members")
    return start + header[9] + header[10]


def _read_array(npy: memoryview, max_bytes: int) -> np.ndarray:
    if bytes(npy[: len(NPY_MAGIC)]) != NPY_MAGIC:
        raise NpzError("unsupported array format")
    (length,) = struct.unpack_from("<H", npy, len(NPY_MAGIC))
    start = len(NPY_MAGIC) + 2 + length
    header = HEADER.fullmatch(bytes(npy[len(NPY_MAGIC) + 2 : start])) if length < OVERHEAD_BYTES else None
    if header is None:
        raise NpzError("unsupported array header: only numeric arrays are supported")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(n) for n in header[3].decode().split(",") if n.strip())
    # an empty array can have long axes, too, of which a sum along the empty one has the length
    if len(shape) > MAX_DIMENSIONS or math.prod(max(n, 1) for n in shape) * dtype.itemsize > max_bytes:
        raise NpzError("an array has too many dimensions or elements")
    if math.prod(shape) * dtype.itemsize != len(npy) - start:
        raise NpzError("the header of an array does not match its size")
    order = "F" if header[2] == b"True" else "C"
    return np.frombuffer(npy[start:], dtype).reshape(shape, order=order).copy(order=order)
