"""Pooling of bytes in the blocked layout as native code: the largest byte of each window, or the rescaled sum.

Two tables give, for each row and each column of the result, the taps of its window that are inside the input: where
they begin, and how many there are. A third gives each pixel the constants of its number of taps.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, INDEX, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.requantize import (
    BLOCK,
    OUTPUT_FIELDS,
    Requantization,
    Requantizer,
    extend_bytes,
    read_output,
)
from mlhood.kernels.codegen.target import Target

_SIZES = ("tasks", "high", "wide", "out_high", "out_wide", "step_y", "step_x", "x_offset")
FIELDS = (*_SIZES, "x", "out", "rows", "columns", "sets", "constants", *OUTPUT_FIELDS)


def build(target: Target, kind: Requantization, largest: bool) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        kind: How sums become bytes; with `largest` only whether bytes are signed.
        largest: Whether to take the largest byte, else the sum.
    """
    arguments = Arguments(FIELDS)
    with arguments.tasks(arguments.integer("tasks")) as task:
        _row(arguments, task, kind, target, largest=largest)
    return arguments.finished()


def _row(arguments: Arguments, task: Int, kind: Requantization, target: Target, *, largest: bool) -> None:
    """Compute one row of one plane."""
    code, f = arguments.code, {name: arguments.integer(name) for name in _SIZES}
    plane, y = task // f["out_high"], task % f["out_high"]
    x = arguments.pointer("x", BYTE).at(plane * f["high"] * f["wide"] * BLOCK)
    rows, columns = arguments.pointer("rows", INDEX).at(y * 2), arguments.pointer("columns", INDEX)
    first_y, count_y = rows.load_int(), rows.at(1).load_int()
    with code.loop(0, f["out_wide"]) as column:
        first_x, count_x = columns.at(column * 2).load_int(), columns.at(column * 2 + 1).load_int()
        window = x.at((first_y * f["wide"] + first_x) * BLOCK)
        steps = (f["step_y"] * f["wide"] * BLOCK, f["step_x"] * BLOCK)
        pixel = y * f["out_wide"] + column
        out = arguments.pointer("out", BYTE).at((plane * f["out_high"] * f["out_wide"] + pixel) * BLOCK)
        counts = count_y, count_x
        if largest:
            out.store(_largest(code, window, steps, counts, kind.signed))
        else:
            totals = _centred_sums(code, arguments, window, steps, counts, kind.signed, target.lanes)
            which = arguments.pointer("sets", INDEX).at(pixel).load_int()
            constants = arguments.pointer("constants", INDEX).at(which * kind.sections["end"])
            requantizer = Requantizer(code, kind, constants, target.lanes, read_output(arguments.integer))
            out.store(requantizer.bytes_of(totals))


def _largest(
    code: FunctionBuilder, window: Pointer, steps: tuple[Int, Int], counts: tuple[Int, Int], signed: bool
) -> Any:
    b, bytes_ = code.builder, ir.VectorType(BYTE, BLOCK)
    result = code.variable(bytes_, ir.Constant(bytes_, [0x80 if signed else 0] * BLOCK))
    compare = b.icmp_signed if signed else b.icmp_unsigned
    with code.loop(0, counts[0]) as i, code.loop(0, counts[1]) as j:
        values = window.at(i * steps[0] + j * steps[1]).load(BLOCK)
        result.set(b.select(compare("<", result.get(), values), values, result.get()))
    return result.get()


def _centred_sums(
    code: FunctionBuilder,
    arguments: Arguments,
    window: Pointer,
    steps: tuple[Int, Int],
    counts: tuple[Int, Int],
    signed: bool,
    lanes: int,
) -> list[Any]:
    """Return the sums of the window's bytes minus their zero point."""
    kind = ir.VectorType(INT32, lanes)
    totals = [code.variable(kind, ir.Constant(kind, None)) for _ in range(BLOCK // lanes)]
    with code.loop(0, counts[0]) as i, code.loop(0, counts[1]) as j:
        pixel = window.at(i * steps[0] + j * steps[1])
        for v, total in enumerate(totals):
            values = extend_bytes(code, pixel.at(v * lanes).load(lanes), signed)
            total.set(code.builder.add(total.get(), values))
    zero_points = code.builder.trunc((counts[0] * counts[1] * arguments.integer("x_offset")).value, INT32)
    return [code.builder.sub(total.get(), code.splat(zero_points, lanes)) for total in totals]
