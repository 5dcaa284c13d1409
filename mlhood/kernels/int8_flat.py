"""Element-wise functions of bytes, prepared once: they take any layout, as all operands have the same one."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.int8_flat_kernel import FIELDS, Function, build
from mlhood.kernels.codegen.requantize import BLOCK, Requantization
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling

_CHUNK = 16384  # elements: large against the cost of taking a task


def prepare_rescale(
    count: int, x_offset: int, rescaling: Rescaling, *, threads: int = 1, target: Target | None = None
) -> NativeCall:
    """Prepare a rescaling of bytes, or of the sum of two tensors of bytes.

    Operands: `x`, `out`; `residual`, if the rescaling has a second term, the other summand.

    Args:
        count: Number of elements, the undefined lanes of a blocked layout included.
        x_offset: Zero point of x; that of the other summand is in the rescaling.
        rescaling: With one multiplier for all channels; its bound may be 255.
        threads: Number of threads that will run it.
        target: The processor; the host by default.
    """
    if (halves := _halves(x_offset, rescaling)) is not None:
        values = halves | rescaling.fields()
        return _call("rescale_halves", count, rescaling.kind(), values, None, threads, target)
    constants = rescaling.constants(BLOCK)
    values = {"x_offset": x_offset, **rescaling.fields()}
    return _call("rescale", count, rescaling.kind(), values, constants, threads, target)


def _halves(x_offset: int, rescaling: Rescaling) -> dict[str, int] | None:
    """Return multipliers and constant split into signed halves of 16 bits; None if they or the shift do not fit."""
    if rescaling.shifts is None or rescaling.negative is not None:
        return None
    shift = int(rescaling.shifts.shift)
    multipliers = [int(multiplier) for multiplier in rescaling.shifts.multipliers]
    offsets = [x_offset, rescaling.z_offset][: len(multipliers)]
    constant = (1 << shift >> 1) - sum(m * offset for m, offset in zip(multipliers, offsets, strict=True))
    factors = [*map(_split, multipliers), (0, 0)][:2]
    if not 16 <= shift < 48 or any(abs(high) >= 2**15 for _, high in factors):
        return None
    low, high = _split(constant)
    packed = [(first & 0xFFFF) | (second & 0xFFFF) << 16 for first, second in zip(*factors, strict=True)]
    values = {"low_factors": packed[0], "high_factors": packed[1], "low_constant": low, "high_constant": high}
    return values | {"shift": shift - 16}


def _split(number: int) -> tuple[int, int]:
    """Return low and high, where number = 2^16 high + low and low is signed."""
    low = (number + 2**15) % 2**16 - 2**15
    return low, (number - low) >> 16


def prepare_lookup(count: int, table: np.ndarray, *, threads: int = 1, target: Target | None = None) -> NativeCall:
    """Prepare a table lookup; operands `x` and `out`.

    Args:
        count: As for `prepare_rescale`.
        table: int8 or uint8 [256], the first entry for the smallest byte of x, which has the same element type.
        threads, target: As for `prepare_rescale`.
    """
    if table.shape != (256,) or table.dtype.itemsize != 1:
        raise KernelError("not a table of bytes", expected="[256], int8 or uint8", got=f"{table.dtype} {table.shape}")
    by_pattern = np.ascontiguousarray(np.roll(table, 128) if table.dtype == np.int8 else table)
    return _call("lookup", count, Requantization(True), {}, by_pattern, threads, target)


def prepare_quantize(
    count: int, scale: float, offset: int, element: str, *, threads: int = 1, target: Target | None = None
) -> NativeCall:
    """Prepare clip(round(x / scale) + offset), ties to even: `x` float32, `out` bytes of the element type.

    Args:
        count, threads, target: As for `prepare_rescale`.
        scale: Rounded to float32.
        offset: Zero point of the result.
        element: `int8` or `uint8`.
    """
    values = Rescaling(element, offset).fields()
    kind = Requantization(element == "int8")
    return _call("quantize", count, kind, values, None, threads, target, {"scale": scale})


def prepare_dequantize(
    count: int, scale: float, offset: int, element: str, *, threads: int = 1, target: Target | None = None
) -> NativeCall:
    """Prepare scale (x - offset): `x` bytes, `out` float32. Arguments are those of `prepare_quantize`, for x."""
    kind = Requantization(element == "int8")
    return _call("dequantize", count, kind, {"x_offset": offset}, None, threads, target, {"scale": scale})


def _call(
    function: Function,
    count: int,
    kind: Requantization,
    values: dict[str, int],
    constants: np.ndarray | None,
    threads: int,
    target: Target | None,
    floats: dict[str, float] | None = None,
) -> NativeCall:
    chunk = max(BLOCK, min(_CHUNK, -(-count // (4 * threads) // BLOCK) * BLOCK))
    address = 0 if constants is None else constants.ctypes.data
    integers: dict[str, Any] = {"tasks": -(-count // chunk), "chunk": chunk, "count": count, "constants": address}
    operands = ("x", "out", *(("residual",) if kind.residual else ()))
    integers = dict.fromkeys(FIELDS, 0) | integers | values
    kernel = jit.load(build, target or host(), function, kind)
    keep = () if constants is None else (constants,)
    return native_call(kernel, FIELDS, integers, operands, floats=floats, keep=keep, name=f"int8 {function}")
