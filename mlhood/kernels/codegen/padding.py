"""Zero padding: copies an image into the middle of a larger plane of zeros, which a convolution reads at its borders.

Rows of the padded plane are written from left to right, a vector at a time: lanes inside the image are loaded, the
others are zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import masked_intrinsic
from mlhood.kernels.codegen.target import Target

# a plane of `high` x `wide` float32; the padded one has `top` more rows above it and `left` more elements before a row
PARAMETERS = {
    "source": ADDRESS,
    "high": INDEX,
    "wide": INDEX,
    "out": ADDRESS,
    "padded_high": INDEX,
    "padded_wide": INDEX,
    "top": INDEX,
    "left": INDEX,
}


def padder(module: ir.Module, name: str, target: Target) -> FunctionBuilder:
    """Add a function with `PARAMETERS` that pads one plane."""
    code = FunctionBuilder(module, name, PARAMETERS, public=False)
    top, left, high, wide = (code.integer(parameter) for parameter in ("top", "left", "high", "wide"))
    padded_wide = code.integer("padded_wide")
    source, out = code.pointer("source"), code.pointer("out")
    with code.loop(0, code.integer("padded_high")) as row:
        in_image = code.builder.and_(top < row + 1, row < top + high)
        stop = (left + wide).where(in_image, left)
        line = source.at((row - top) * wide)
        with code.loop(0, padded_wide, target.lanes) as column:
            pixels, address = line.at(column - left), out.at(row * padded_wide + column)
            all_in_image = code.builder.and_(left < column + 1, column + target.lanes < stop + 1)
            with code.builder.if_else(all_in_image) as (copy, mix):
                with copy:
                    address.store(pixels.load(target.lanes))
                with mix:
                    from_left = _compare_lanes(code, ">=", column, left, target)
                    image = code.builder.and_(from_left, _compare_lanes(code, "<", column, stop, target))
                    valid = _compare_lanes(code, "<", column, padded_wide, target)
                    _copy_masked(code, pixels, address, image, valid)
    code.ret()
    return code


def _copy_masked(code: FunctionBuilder, source: Pointer, out: Pointer, image: Any, valid: Any) -> None:
    """Copy the lanes in the mask `image`, and write zeros to the other lanes in the mask `valid`."""
    kind = ir.VectorType(FLOAT, image.type.count)
    zeros = ir.Constant(kind, [0.0] * kind.count)
    pixels = code.builder.call(masked_intrinsic(code, "load", kind), [source.value, INT32(4), image, zeros])
    code.builder.call(masked_intrinsic(code, "store", kind), [pixels, out.value, INT32(4), valid])


def _compare_lanes(code: FunctionBuilder, comparison: str, first: Int, limit: Int, target: Target) -> Any:
    """Return the mask of the indices `first`, `first` + 1, ... that compare like this with the limit."""
    lanes = ir.Constant(ir.VectorType(INT32, target.lanes), list(range(target.lanes)))
    distance = code.builder.trunc((limit - first).value, INT32)
    return code.builder.icmp_signed(comparison, lanes, code.splat(distance, target.lanes))
