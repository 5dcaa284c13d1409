"""A copy of a BLAS library whose functions do nothing, for a NumPy without matrix products.

NumPy loads its BLAS when it is imported, so the library has to be there, where ctypes reaches it, too; and with it that
of GNU Fortran, whose `matmul` is as fast.
"""

from __future__ import annotations

import platform
import re
import struct
from collections.abc import Iterator
from pathlib import Path

NAME = re.compile(r"blas|lapack|mkl|gfortran")
# the instruction that returns to the caller, by processor
RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}
KEPT = re.compile(
    rb"[sdcz]dot|openblas_|blas_thread|gotoblas"
)  # NumPy tests one product of vectors when it is imported
DYNAMIC_SYMBOLS, LOADED, FUNCTION, GLOBAL = 11, 1, 2, (1, 2)
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


def is_blas(path: Path) -> bool:
    """Whether a file is a library with matrix products, by its name."""
    return ".so" in path.name and NAME.search(path.name) is not None


def without_products(library: bytes) -> bytes:
    """Return an ELF library of 64 bits in which the functions that it exports return at once.

    Other processors than those of RETURN keep them.
    """
    code = RETURN.get(platform.machine())
    if code is None:
        return library
    changed = bytearray(library)
    for offset in _exported(library):
        changed[offset : offset + len(code)] = code
    return bytes(changed)


def _exported(library: bytes) -> Iterator[int]:
    """Yield where in the file the exported functions begin (elf(5))."""
    programs, sections = struct.unpack_from("<QQ", library, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", library, 54)
    headers = [struct.unpack_from("<IIQQQQ", library, programs + i * program_size) for i in range(program_count)]
    loaded = [(address, offset, size) for kind, _, offset, address, _, size in headers if kind == LOADED]
    tables = [struct.unpack_from("<IIQQQQI", library, sections + i * section_size) for i in range(section_count)]
    for _, kind, _, _, offset, size, link in tables:
        if kind != DYNAMIC_SYMBOLS:
            continue
        names = tables[link][4]
        for name, info, _, section, value, _ in SYMBOL.iter_unpack(library[offset : offset + size]):
            text = library[names + name : library.index(b"\0", names + name)]
            if info & 15 == FUNCTION and info >> 4 in GLOBAL and section and not KEPT.search(text):
                yield from (value - start + at for start, at, length in loaded if start <= value < start + length)
