"""Dot products of a few integers in each lane, added to 32 bits, exact on every processor.

With VNNI one instruction multiplies four pairs of bytes in every lane and adds them to the accumulator. Elsewhere it
multiplies two pairs of 16-bit integers and adds both products (`pmaddwd` on x86). With AVX2 there is also one for
bytes, which adds two products in 16 bits and saturates (`pmaddubsw`): it serves where the numbers are small enough.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import BYTE, INT32, FunctionBuilder

_SHORT = ir.IntType(16)
_VNNI = "llvm.x86.avx512.vpdpbusd.512"


def dot(code: FunctionBuilder, a: Any, b: Any, total: Any) -> Any:
    """Return total + the four products of a's unsigned and b's signed bytes in each lane, with VNNI."""
    quads = ir.VectorType(BYTE, 4 * total.type.count)
    multiply_add = _function(code, _VNNI, total.type, [total.type, quads, quads])
    return code.builder.call(multiply_add, [total, code.builder.bitcast(a, quads), code.builder.bitcast(b, quads)])


def dot_pairs(code: FunctionBuilder, a: Any, b: Any, total: Any) -> Any:
    """Return total + the two products of signed 16-bit integers in each lane; all are <lanes x i32>."""
    shorts = ir.VectorType(_SHORT, 2 * total.type.count)
    return code.builder.add(total, _pairwise(code, code.builder.bitcast(a, shorts), code.builder.bitcast(b, shorts)))


def dot_saturating(code: FunctionBuilder, a: Any, b: Any, total: Any) -> Any:
    """Return what `dot` does if no sum of two adjacent products leaves 16 bits, where it would saturate; for AVX2."""
    bytes_, shorts = (ir.VectorType(kind, 32 // size) for kind, size in ((BYTE, 1), (_SHORT, 2)))
    multiply = _function(code, "llvm.x86.avx2.pmadd.ub.sw", shorts, [bytes_, bytes_])
    add_pairs = _function(code, "llvm.x86.avx2.pmadd.wd", total.type, [shorts, shorts])
    pairs = code.builder.call(multiply, [code.builder.bitcast(a, bytes_), code.builder.bitcast(b, bytes_)])
    ones = ir.Constant(shorts, [1] * shorts.count)
    return code.builder.add(total, code.builder.call(add_pairs, [pairs, ones]))


def _function(code: FunctionBuilder, name: str, result: Any, parameters: list[Any]) -> Any:
    return code.module.globals.get(name) or ir.Function(code.module, ir.FunctionType(result, parameters), name)


def _pairwise(code: FunctionBuilder, a: Any, b: Any) -> Any:
    """Multiply 16-bit integers and add adjacent 32-bit products."""
    wide = ir.VectorType(INT32, a.type.count)
    products = code.builder.mul(code.builder.sext(a, wide), code.builder.sext(b, wide))
    even, odd = (code.shuffle(products, products, range(first, wide.count, 2)) for first in (0, 1))
    return code.builder.add(even, odd)
