"""Tiles of bytes (AMX): eight registers of 16 rows of 64 bytes, and an instruction that multiplies two of them.

A tile of a holds 16 rows of 64 bytes of k. A tile of b holds 64 k times 16 columns, with four adjacent k of a column in
a word, as for VNNI. A tile of sums holds 16 rows times 16 columns of int32; a product adds 64 k to each of them in 16
cycles, exact, and wraps around on overflow. Tiles are numbered; what they hold lives on across calls of functions that
use none. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.)
"""

from __future__ import annotations

from typing import Any, cast

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, BYTE, INDEX, FunctionBuilder, Int, Pointer

ROWS = 16  # of a tile, and columns of a tile of sums
ROW_BYTES = 64
QUADS = ROW_BYTES // 4  # words of k in a row
SUMS, A, B = ((0, 1), (2, 3)), (4, 5), (6, 7)  # numbers of the tiles of a product of 2 tiles of a with 2 of b
_TILES = 8
_PALETTE = 1
_CONFIGURATION_BYTES = 64


def configure(code: FunctionBuilder) -> None:
    """Make all tiles 16 rows of 64 bytes of zeros; a thread does so before it uses them, once in a module."""
    widths, heights = (ROW_BYTES, 0) * _TILES, (ROWS,) * _TILES
    content = bytes([_PALETTE, *[0] * 15, *widths, *[0] * 16, *heights]).ljust(_CONFIGURATION_BYTES, b"\0")
    kind = ir.ArrayType(BYTE, _CONFIGURATION_BYTES)
    table = cast("Any", ir.GlobalVariable(code.module, kind, "tile_configuration"))
    table.initializer, table.global_constant = ir.Constant(kind, bytearray(content)), True
    table.linkage = "internal"
    _call(code, "ldtilecfg", [ADDRESS], [table])


def release(code: FunctionBuilder) -> None:
    """Give the tiles up, so that a switch to another thread need not save them."""
    _call(code, "tilerelease", [], [])


def zero(code: FunctionBuilder, tile: int) -> None:
    """Set a tile to zero."""
    _call(code, "tilezero", [BYTE], [BYTE(tile)])


def load(code: FunctionBuilder, tile: int, source: Pointer, stride: Int | int) -> None:
    """Load 16 rows of 64 bytes.

    Args:
        code: The function.
        tile: Number of the tile.
        source: The first row.
        stride: From one row to the next in bytes; 0 for 16 times the same row.
    """
    _call(code, "tileloadd64", [BYTE, ADDRESS, INDEX], [BYTE(tile), source.value, _index(stride)])


def store(code: FunctionBuilder, tile: int, out: Pointer, stride: Int | int) -> None:
    """Store 16 rows of 64 bytes; arguments as for `load`."""
    _call(code, "tilestored64", [BYTE, ADDRESS, INDEX], [BYTE(tile), out.value, _index(stride)])


def multiply(code: FunctionBuilder, total: int, a: int, b: int, *, signed: bool) -> None:
    """Add the product of two tiles to a third one; b is s8.

    Args:
        code: The function.
        total: Number of the tile of sums.
        a, b: Numbers of the factors.
        signed: Whether a is s8, else u8.
    """
    _call(code, "tdpbssd" if signed else "tdpbusd", [BYTE] * 3, [BYTE(tile) for tile in (total, a, b)])


def multiply_step(code: FunctionBuilder, columns: int, a: tuple[Pointer, Int | int], b: Any, *, signed: bool) -> None:
    """Add the products of two tiles of a with one or two of b to the tiles `SUMS`.

    Args:
        code: The function.
        columns: Tiles of b.
        a: The first row of the first tile, and the distance of rows; the second tile is the 16 rows after it.
        b: Likewise for b, whose second tile follows within its rows.
        signed: Whether a is s8, else u8.
    """
    (a_start, a_stride), (b_start, b_stride) = a, b
    for column in range(columns):
        load(code, B[column], b_start.at(column * ROW_BYTES), b_stride)
    for row in range(2):
        load(code, A[row], a_start.at(a_stride * (row * ROWS)), a_stride)
        for column in range(columns):
            multiply(code, SUMS[row][column], A[row], B[column], signed=signed)


def _index(value: Int | int) -> Any:
    return value.value if isinstance(value, Int) else INDEX(value)


def _call(code: FunctionBuilder, name: str, parameters: list[Any], values: list[Any]) -> None:
    name = f"llvm.x86.{name}"
    signature = ir.FunctionType(ir.VoidType(), parameters)
    callee = code.module.globals.get(name) or ir.Function(code.module, signature, name)
    code.builder.call(callee, values)
