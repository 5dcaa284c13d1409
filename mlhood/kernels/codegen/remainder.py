"""The last vector of a row: loads and stores of fewer elements than a register has lanes, which touch nothing beyond.

`load_lanes` and `store_lanes` take a constant number of elements, the others one that is known at run time only.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.target import Target


def mask_of(code: FunctionBuilder, count: Int, lanes: int) -> Any:
    """Return the mask of the first `count` lanes: none if it is negative, all if it is `lanes` or more."""
    indices = ir.Constant(ir.VectorType(INT32, lanes), list(range(lanes)))
    limit = code.builder.trunc(count.minimum(lanes).value, INT32)
    return code.builder.icmp_signed("<", indices, code.splat(limit, lanes))


def load_first(code: FunctionBuilder, address: Pointer, count: Int, lanes: int, other: float = 0.0) -> Any:
    """Load the first `count` lanes; the others have the value `other`."""
    kind = ir.VectorType(FLOAT, lanes)
    mask, others = mask_of(code, count, lanes), ir.Constant(kind, [other] * lanes)
    return code.builder.call(masked_intrinsic(code, "load", kind), [address.value, INT32(4), mask, others])


def store_first(code: FunctionBuilder, address: Pointer, vector: Any, count: Int, target: Target) -> None:
    """Store the first `count` lanes: none, some or all."""
    if target.masked:
        mask = mask_of(code, count, vector.type.count)
        code.builder.call(masked_intrinsic(code, "store", vector.type), [vector, address.value, INT32(4), mask])
        return
    # all, half of the lanes, a quarter, ...: masked stores are slow on some processors with AVX2, and missing on others
    builder, size = code.builder, vector.type.count
    rest, offset = code.variable(vector.type, vector), code.variable(count.value.type, code.constant(0).value)
    while size:
        is_stored = builder.icmp_signed(
            "!=", builder.and_(count.value, code.constant(size).value), code.constant(0).value
        )
        with builder.if_then(is_stored):
            part, start = rest.get(), Int(builder, offset.get())
            address.at(start).store(code.shuffle(part, part, range(size)))
            rest.set(code.shuffle(part, part, [*range(size, part.type.count), *range(size)]))  # rotate
            offset.set((start + size).value)
        size //= 2


def store_lanes(code: FunctionBuilder, address: Pointer, vector: Any, count: int, target: Target) -> None:
    """Store the first `count` lanes of a vector without touching memory beyond them."""
    if count == vector.type.count:
        address.store(vector)
    else:
        store_first(code, address, vector, code.constant(count), target)


def load_lanes(code: FunctionBuilder, address: Pointer, lanes: int, count: int) -> Any:
    """Load `count` lanes without touching memory beyond them; the other lanes are zero."""
    return address.load(lanes) if count == lanes else load_first(code, address, code.constant(count), lanes)


def masked_intrinsic(code: FunctionBuilder, operation: str, kind: Any) -> Any:
    """Return LLVM's masked `load` (address, alignment, mask, passthrough) or `store` (vector, address, ..., mask)."""
    name, mask = f"llvm.masked.{operation}.v{kind.count}f32.p0", ir.VectorType(ir.IntType(1), kind.count)
    if name in code.module.globals:
        return code.module.globals[name]
    if operation == "store":
        return ir.Function(code.module, ir.FunctionType(ir.VoidType(), [kind, ADDRESS, INT32, mask]), name)
    return ir.Function(code.module, ir.FunctionType(kind, [ADDRESS, INT32, mask, kind]), name)
