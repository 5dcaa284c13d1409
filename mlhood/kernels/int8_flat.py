"""Element-wise functions of bytes: sums, rescaling, tables, and conversion from and to float32.

They take any layout, as all operands have the same one.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, FLOAT, INDEX, INT32, Int, Pointer
from mlhood.kernels.codegen.requantize import (
    BLOCK,
    OUTPUT_FIELDS,
    Requantization,
    Requantizer,
    clamp_bytes,
    concatenate,
    copy_bytes,
    extend_bytes,
    read_output,
)
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling

_CHUNK = 16384  # elements: large against the cost of taking a task
Function = Literal["rescale", "lookup", "quantize", "dequantize"]
FIELDS = ("tasks", "chunk", "count", "x", "residual", "out", "constants", "x_offset", "scale", *OUTPUT_FIELDS)
_MAGIC = 1.5 * 2.0**23  # added to a float32 of less than 2^22, it leaves the nearest integer in the low bits
_SIZES = {"rescale": (1, 1), "lookup": (1, 1), "quantize": (4, 1), "dequantize": (1, 4)}  # bytes of x and of the result


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
    constants = rescaling.constants(BLOCK)
    values = {"x_offset": x_offset, **rescaling.fields()}
    return _call("rescale", count, rescaling.kind(), values, constants, threads, target)


def prepare_lookup(count: int, table: np.ndarray, *, threads: int = 1, target: Target | None = None) -> NativeCall:
    """Prepare a table lookup; operands `x` and `out`.

    Args:
        count: As for `prepare_rescale`.
        table: int8 or uint8 [256], the first entry for the smallest byte of x, which has the same element type.
        threads, target: As for `prepare_rescale`.
    """
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


# -- the generated code


def build(target: Target, function: Function, kind: Requantization) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        function: `rescale` x, with a second term where `kind` has one; `lookup` the byte in a table; `quantize`
            float32, or `dequantize` to it.
        kind: How a sum becomes a byte; with the other functions only whether bytes are signed.
    """
    arguments = Arguments(FIELDS)
    operation = _Operation(arguments, function, kind, target)
    with arguments.tasks(arguments.integer("tasks")) as task:
        start = task * arguments.integer("chunk")
        stop = (start + arguments.integer("chunk")).minimum(arguments.integer("count"))
        operation.apply(start, stop)
    return arguments.finished()


class _Operation:
    def __init__(self, arguments: Arguments, function: Function, kind: Requantization, target: Target) -> None:
        self.arguments, self.function, self.kind, self.lanes = arguments, function, kind, target.lanes
        self.code = code = arguments.code
        self.output = read_output(arguments.integer)
        self.constants = arguments.pointer("constants", INDEX)
        self.x, self.z, self.out = (arguments.pointer(name, BYTE) for name in ("x", "residual", "out"))
        # loaded here: in a loop they would be loaded again after every store
        self.offset = code.splat(code.builder.trunc(arguments.integer("x_offset").value, INT32), self.lanes)
        self.scale = code.splat(arguments.float32("scale"), self.lanes)
        self.buffers = [self.code.buffer(4 * BLOCK, BYTE) for _ in range(3)]

    def apply(self, start: Int, stop: Int) -> None:
        """Apply the function to a range of elements; those that do not fill a block are copied to buffers first."""
        code, (x_size, out_size) = self.code, _SIZES[self.function]
        if self.function == "lookup":
            self._lookup(start, stop)
            return
        full = start + (stop - start) // BLOCK * BLOCK
        with code.loop(start, full, BLOCK) as i:
            self._block(self.x.at(i * x_size), self.z.at(i), self.out.at(i * out_size))
        with code.builder.if_then(full < stop):
            x, z, out = self.buffers
            copy_bytes(code, x, self.x.at(full * x_size), (stop - full) * x_size)
            if self.kind.residual:
                copy_bytes(code, z, self.z.at(full), stop - full)
            self._block(x, z, out)
            copy_bytes(code, self.out.at(full * out_size), out, (stop - full) * out_size)

    def _lookup(self, start: Int, stop: Int) -> None:
        table, b = self.constants.cast(BYTE), self.code.builder
        with self.code.loop(start, stop) as i:
            byte = Int(b, b.zext(self.x.at(i).load(), INDEX))
            self.out.at(i).store(table.at(byte).load())

    def _block(self, x: Pointer, z: Pointer, out: Pointer) -> None:
        if self.function == "rescale":
            requantizer = Requantizer(self.code, self.kind, self.constants, self.lanes, self.output)
            term = z.load(BLOCK) if self.kind.residual else None
            out.store(requantizer.bytes_of(self._centred(x), term))
        elif self.function == "quantize":
            results = [self._rounded(x.cast(FLOAT).at(v * self.lanes)) for v in range(BLOCK // self.lanes)]
            out.store(clamp_bytes(self.code, concatenate(self.code, results), self.kind.signed, self.output))
        else:
            for v, values in enumerate(self._centred(x)):
                reals = self.code.builder.sitofp(values, ir.VectorType(FLOAT, self.lanes))
                out.cast(FLOAT).at(v * self.lanes).store(self.code.builder.fmul(reals, self.scale))

    def _centred(self, x: Pointer) -> list[Any]:
        """Return the bytes minus their zero point, as vectors of int32."""
        b = self.code.builder
        vectors = [x.at(v * self.lanes).load(self.lanes) for v in range(BLOCK // self.lanes)]
        return [b.sub(extend_bytes(self.code, vector, self.kind.signed), self.offset) for vector in vectors]

    def _rounded(self, x: Pointer) -> Any:
        """Return round(x / scale) + offset: ties to even, limited to far beyond any byte; NaN is the lower limit."""
        code, b = self.code, self.code.builder
        quotient: Any = b.fdiv(x.load(self.lanes), self.scale)
        low, high = (ir.Constant(quotient.type, [limit] * self.lanes) for limit in (-1024.0, 1024.0))
        limited = code.minimum(b.select(b.fcmp_ordered(">", quotient, low), quotient, low), high)
        integers = ir.VectorType(INT32, self.lanes)
        magic = ir.Constant(quotient.type, [_MAGIC] * self.lanes)
        rounded = b.sub(b.bitcast(b.fadd(limited, magic), integers), b.bitcast(magic, integers))
        return b.add(rounded, code.splat(self.output.offset, self.lanes))
