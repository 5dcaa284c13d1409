"""Copying an image into the middle of zeros: what a convolution reads beyond the border of its input.

A row of the padded plane is written from one end to the other, a vector at a time: lanes inside the image are loaded,
the others are zero.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, INT32, Code, Int, Pointer
from mlhood.kernels.codegen.microkernel import masked
from mlhood.kernels.codegen.target import Target

# a plane of `high` x `wide` float32, of which the padded one has `top` rows above and `left` numbers before each row
PARAMETERS = {
    "source": ADDRESS, "high": INDEX, "wide": INDEX,
    "out": ADDRESS, "padded_high": INDEX, "padded_wide": INDEX, "top": INDEX, "left": INDEX,
}  # fmt: skip


def padder(module: ir.Module, name: str, target: Target) -> Code:
    """Write a function that pads one plane; its parameters are `PARAMETERS`."""
    code = Code(module, name, PARAMETERS, public=False)
    top, left, high, wide = (code.integer(one) for one in ("top", "left", "high", "wide"))
    padded_wide = code.integer("padded_wide")
    source, out = code.pointer("source"), code.pointer("out")
    with code.loop(0, code.integer("padded_high")) as row:
        inside = code.builder.and_(top < row + 1, row < top + high)
        stop = (left + wide).where(inside, left)
        line, place = source.at((row - top) * wide), out.at(row * padded_wide)
        with code.loop(0, padded_wide, target.lanes) as column:
            pixels, place = line.at(column - left), out.at(row * padded_wide + column)
            whole = code.builder.and_(left < column + 1, column + target.lanes < stop + 1)
            with code.builder.if_else(whole) as (copy, mix):
                with copy:
                    place.store(pixels.load(target.lanes))
                with mix:
                    image = code.builder.and_(_from(code, column, left, target), _below(code, column, stop, target))
                    _copy(code, pixels, place, image, _below(code, column, padded_wide, target))
    code.done()
    return code


def _copy(code: Code, source: Pointer, out: Pointer, image: Any, there: Any) -> None:
    """Copy the lanes of an image, and write zeros into the others that are there."""
    kind = ir.VectorType(FLOAT, image.type.count)
    zeros = ir.Constant(kind, [0.0] * kind.count)
    numbers = code.builder.call(masked(code, "load", kind), [source.value, INT32(4), image, zeros])
    code.builder.call(masked(code, "store", kind), [numbers, out.value, INT32(4), there])


def _below(code: Code, first: Int, limit: Int, target: Target) -> Any:
    """Return which of the lanes `first`, `first` + 1, ... lie below the limit."""
    return code.builder.icmp_signed("<", _lanes(target), _splat(code, limit - first, target))


def _from(code: Code, first: Int, limit: Int, target: Target) -> Any:
    return code.builder.icmp_signed(">=", _lanes(target), _splat(code, limit - first, target))


def _lanes(target: Target) -> Any:
    return ir.Constant(ir.VectorType(INT32, target.lanes), list(range(target.lanes)))


def _splat(code: Code, number: Int, target: Target) -> Any:
    return code.splat(code.builder.trunc(number.value, INT32), target.lanes)
