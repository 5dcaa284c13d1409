"""Four bytes at a time: the step of a matrix product of u8 and s8 into s32, exact on every processor.

With VNNI one instruction multiplies four pairs of bytes in every lane and adds them to a sum. Elsewhere bytes become
16-bit numbers, even and odd ones apart, whose products are added in pairs (`pmaddwd` on x86): nothing saturates.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import BYTE, INT32, Code
from mlhood.kernels.codegen.target import Target

_SHORT = ir.IntType(16)
_VNNI = "llvm.x86.avx512.vpdpbusd.512"


def dot(code: Code, a: Any, b: Any, total: Any, target: Target) -> Any:
    """Return total + the four products of a's unsigned and b's signed bytes, lane by lane; all are <lanes x i32>."""
    if target.dot:
        known = code.module.globals.get(_VNNI)
        quads = ir.VectorType(BYTE, 4 * target.lanes)
        signature = ir.FunctionType(total.type, [total.type, quads, quads])
        callee = known or ir.Function(code.module, signature, _VNNI)
        return code.builder.call(callee, [total, code.builder.bitcast(a, quads), code.builder.bitcast(b, quads)])
    for parity in (0, 1):
        total = code.builder.add(total, _pairs(code, _unsigned(code, a, parity), _signed(code, b, parity)))
    return total


def _halves(code: Code, vector: Any) -> tuple[Any, Any]:
    """Return the vector as 16-bit numbers, and eight of each."""
    kind = ir.VectorType(_SHORT, 2 * vector.type.count)
    return code.builder.bitcast(vector, kind), ir.Constant(kind, [8] * kind.count)


def _unsigned(code: Code, vector: Any, parity: int) -> Any:
    halves, eight = _halves(code, vector)
    return code.builder.lshr(halves if parity else code.builder.shl(halves, eight), eight)


def _signed(code: Code, vector: Any, parity: int) -> Any:
    halves, eight = _halves(code, vector)
    return code.builder.ashr(halves if parity else code.builder.shl(halves, eight), eight)


def _pairs(code: Code, a: Any, b: Any) -> Any:
    """Return the products of 16-bit numbers as 32-bit ones, neighbours added."""
    wide = ir.VectorType(INT32, a.type.count)
    products = code.builder.mul(code.builder.sext(a, wide), code.builder.sext(b, wide))
    even, odd = (code.shuffle(products, products, range(first, wide.count, 2)) for first in (0, 1))
    return code.builder.add(even, odd)
