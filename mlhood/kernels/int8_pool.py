"""Pooling of bytes in the blocked layout: the largest byte of each window, or the rescaled sum.

Two tables give, for each row and each column of the result, the taps of its window that are inside the input: where
they begin, and how many there are. A third gives each pixel the constants of its number of taps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit
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
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling
from mlhood.kernels.windows import Windows

_SIZES = ("tasks", "high", "wide", "out_high", "out_wide", "step_y", "step_x", "x_offset")
FIELDS = (*_SIZES, "x", "out", "rows", "columns", "sets", "constants", *OUTPUT_FIELDS)


def prepare_max_pool(windows: Windows, element: str, *, target: Target | None = None) -> NativeCall:
    """Prepare the largest byte of each window, the smallest one where a window is all padding.

    Operands: `x` and `out`, blocked bytes.

    Args:
        windows: The windows of the planes, which are blocks of 16 channels.
        element: `int8` or `uint8`.
        target: The processor; the host by default.
    """
    return _call(windows, Requantization(element == "int8"), {}, None, None, target, "int8 maximum")


def prepare_sum_pool(
    windows: Windows,
    x_offset: int,
    rescalings: Mapping[int, Rescaling],
    counts: np.ndarray,
    *,
    target: Target | None = None,
) -> NativeCall:
    """Prepare the rescaled sum of each window's bytes minus their zero point: averages, global ones too.

    Operands: `x` and `out`, blocked bytes.

    Args:
        windows: As for `prepare_max_pool`.
        x_offset: Zero point of x.
        rescalings: By the number of elements that a window's mean is of, all with the same element, offset and limits.
        counts: Those numbers for each window, [out height, out width].
        target: As for `prepare_max_pool`.
    """
    numbers = sorted(set(counts.ravel().tolist()))
    kinds = {rescalings[number].kind() for number in numbers}
    wide = any(kind.wide for kind in kinds)
    first = rescalings[numbers[0]]
    kind = Requantization(first.signed, "shift", wide)
    constants = np.concatenate([rescalings[number].constants(BLOCK, wide=wide) for number in numbers])
    sets = np.searchsorted(numbers, counts.ravel()).astype(np.int64)
    values = {"x_offset": x_offset, **first.fields()}
    return _call(windows, kind, values, constants, sets, target, "int8 average")


def _taps(windows: Windows, axis: int) -> np.ndarray:
    """Return where each window's taps inside the input begin, and how many they are: int64 [windows, 2]."""
    first, last = windows.bounds(axis).T
    starts = np.arange(windows.out[axis]) * windows.stride[axis] - windows.padding[axis]
    starts = np.where(last > first, starts + first * windows.dilation[axis], 0)
    return np.stack([starts, last - first], axis=1)


def _call(
    windows: Windows,
    kind: Requantization,
    values: dict[str, int],
    constants: np.ndarray | None,
    sets: np.ndarray | None,
    target: Target | None,
    name: str,
) -> NativeCall:
    rows, columns = _taps(windows, 0), _taps(windows, 1)
    keep = tuple(array for array in (rows, columns, constants, sets) if array is not None)
    (high, wide), out, steps = windows.size, windows.out, windows.dilation
    sizes = {"high": high, "wide": wide, "out_high": out[0], "out_wide": out[1]}
    sizes |= {"step_y": steps[0], "step_x": steps[1], "tasks": windows.planes * out[0]}
    addresses = {"rows": rows.ctypes.data, "columns": columns.ctypes.data}
    addresses |= {n: 0 if a is None else a.ctypes.data for n, a in (("constants", constants), ("sets", sets))}
    integers = dict.fromkeys(FIELDS, 0) | sizes | addresses | values
    kernel = jit.load(build, target or host(), kind, constants is None)
    return native_call(kernel, FIELDS, integers, ("x", "out"), keep=keep, name=name)


# -- the generated code


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
