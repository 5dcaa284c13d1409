"""Dot products of four bytes per lane: the step of a matrix product of u8 and s8 into s32, exact on every processor.

With VNNI one instruction multiplies four pairs of bytes in every lane and adds them to the accumulator. Elsewhere bytes
are widened to 16 bits, even and odd ones separately, and their products are added in pairs (`pmaddwd` on x86): nothing
saturates.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import BYTE, INT32, FunctionBuilder
from mlhood.kernels.codegen.target import Target

_SHORT = ir.IntType(16)
_VNNI = "llvm.x86.avx512.vpdpbusd.512"


def dot(code: FunctionBuilder, a: Any, b: Any, total: Any, target: Target) -> Any:
    """Return total + the four products of a's unsigned and b's signed bytes in each lane; all are <lanes x i32>."""
    if target.dot:
        quads = ir.VectorType(BYTE, 4 * target.lanes)
        signature = ir.FunctionType(total.type, [total.type, quads, quads])
        callee = code.module.globals.get(_VNNI) or ir.Function(code.module, signature, _VNNI)
        return code.builder.call(callee, [total, code.builder.bitcast(a, quads), code.builder.bitcast(b, quads)])
    for parity in (0, 1):
        unsigned = _extend(code, a, parity, code.builder.lshr)
        signed = _extend(code, b, parity, code.builder.ashr)
        total = code.builder.add(total, _pairwise(code, unsigned, signed))
    return total


def _extend(code: FunctionBuilder, vector: Any, parity: int, shift_right: Any) -> Any:
    """Return the even (0) or odd (1) bytes as 16-bit integers; `lshr` extends them with zeros, `ashr` with the sign."""
    kind = ir.VectorType(_SHORT, 2 * vector.type.count)
    shorts, eight = code.builder.bitcast(vector, kind), ir.Constant(kind, [8] * kind.count)
    return shift_right(shorts if parity else code.builder.shl(shorts, eight), eight)


def _pairwise(code: FunctionBuilder, a: Any, b: Any) -> Any:
    """Multiply 16-bit integers and add adjacent 32-bit products."""
    wide = ir.VectorType(INT32, a.type.count)
    products = code.builder.mul(code.builder.sext(a, wide), code.builder.sext(b, wide))
    even, odd = (code.shuffle(products, products, range(first, wide.count, 2)) for first in (0, 1))
    return code.builder.add(even, odd)
