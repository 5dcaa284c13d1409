"""Element-wise functions of flat bytes as native code: sums, rescaling, tables, and conversion from and to float32."""

from __future__ import annotations

from typing import Any, Literal

from llvmlite import ir

from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.dot_products import dot_pairs
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
from mlhood.kernels.codegen.target import Target

Function = Literal["rescale", "rescale_halves", "lookup", "quantize", "dequantize"]
_HALVES = ("low_factors", "high_factors", "low_constant", "high_constant", "shift")
FIELDS = ("tasks", "chunk", "count", "x", "residual", "out", "constants", "x_offset", "scale", *_HALVES, *OUTPUT_FIELDS)
_MAGIC = 1.5 * 2.0**23  # added to a float32 of less than 2^22, it leaves the nearest integer in the low bits
_SIZES = {  # bytes of x and of the result
    "rescale": (1, 1),
    "rescale_halves": (1, 1),
    "lookup": (1, 1),
    "quantize": (4, 1),
    "dequantize": (1, 4),
}


def build(target: Target, function: Function, kind: Requantization) -> str:
    """Return the module as LLVM IR.

    Args:
        target: The processor.
        function: `rescale` x, with a second term where `kind` has one; `rescale_halves`, the same in 32 bits, with
            each multiplier split into two of 16 bits; `lookup` the byte in a table; `quantize` float32, or
            `dequantize` to it.
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
        integers = {name: arguments.integer(name).value for name in ("x_offset", *_HALVES)}
        self.scalars = {name: code.builder.trunc(value, INT32) for name, value in integers.items()}
        self.scale = code.splat(arguments.float32("scale"), self.lanes)
        self.vector = ir.VectorType(INT32, self.lanes)
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
        elif self.function == "rescale_halves":
            results = [self._by_halves(x.at(v * self.lanes), z.at(v * self.lanes)) for v in range(BLOCK // self.lanes)]
            out.store(clamp_bytes(self.code, concatenate(self.code, results), self.kind.signed, self.output))
        elif self.function == "quantize":
            results = [self._rounded(x.cast(FLOAT).at(v * self.lanes)) for v in range(BLOCK // self.lanes)]
            out.store(clamp_bytes(self.code, concatenate(self.code, results), self.kind.signed, self.output))
        else:
            for v, values in enumerate(self._centred(x)):
                reals = self.code.builder.sitofp(values, ir.VectorType(FLOAT, self.lanes))
                out.cast(FLOAT).at(v * self.lanes).store(self.code.builder.fmul(reals, self.scale))

    def _by_halves(self, x: Pointer, z: Pointer) -> Any:
        """Return (high + (low >> 16)) >> shift, where 2^16 high + low is the sum of products."""
        code, b, lanes = self.code, self.code.builder, self.lanes
        terms = [extend_bytes(code, x.load(lanes), self.kind.signed, 16)]
        second = z.load(lanes) if self.kind.residual else ir.Constant(ir.VectorType(BYTE, lanes), None)
        terms.append(extend_bytes(code, second, self.kind.signed, 16))
        order = [i for lane in range(lanes) for i in (lane, lanes + lane)]
        pairs = b.bitcast(code.shuffle(terms[0], terms[1], order), self.vector)
        low = dot_pairs(code, pairs, self._splat("low_factors"), self._splat("low_constant"))
        high = dot_pairs(code, pairs, self._splat("high_factors"), self._splat("high_constant"))
        total = b.add(high, b.ashr(low, ir.Constant(self.vector, [16] * lanes)))
        return b.add(b.ashr(total, self._splat("shift")), code.splat(self.output.offset, lanes))

    def _splat(self, name: str) -> Any:
        return self.code.splat(self.scalars[name], self.lanes)

    def _centred(self, x: Pointer) -> list[Any]:
        """Return the bytes minus their zero point, as vectors of int32."""
        b = self.code.builder
        offset = self._splat("x_offset")
        vectors = [x.at(v * self.lanes).load(self.lanes) for v in range(BLOCK // self.lanes)]
        return [b.sub(extend_bytes(self.code, vector, self.kind.signed), offset) for vector in vectors]

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
