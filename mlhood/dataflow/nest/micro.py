"""The generated microkernel behind an interface that code compiled by Numba can call."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, FunctionBuilder, Pointer
from mlhood.kernels.codegen.microkernel import MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.target import Target, host

FIELDS = ("a", "b", "table", "rounds", "output", "row")  # addresses, trip count of the reduction, stride in elements


def build(target: Target, rows: int, vectors: int, a_stride: int) -> str:
    """Return a module whose function `kernel(arguments, wait)` adds one tile's product to the output, as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the tile.
        vectors: Its columns, in vectors.
        a_stride: Elements of a from one row to the next.
    """
    module = ir.Module()
    multiply = microkernel(
        module, "multiply", MicrokernelSpec(Tile(rows, vectors, target.lanes), a_stride, a="table"), target
    )
    code = FunctionBuilder(module, "kernel", {"arguments": ADDRESS, "wait": INDEX})
    words = code.pointer("arguments", INDEX)
    word = {name: words.at(i).load_int() for i, name in enumerate(FIELDS)}
    address = {name: _pointer(code, word[name].value) for name in ("a", "b", "table", "output")}
    null, limits = ir.Constant(ADDRESS, None), [ir.Constant(FLOAT, float(end)) for end in ("-inf", "inf")]
    tile = (address["output"], word["row"])
    arguments = (address["a"], address["b"], address["table"], word["rounds"], *tile, *tile)
    code.call(multiply, *arguments, null, null, *limits)
    code.ret()
    return str(module)


def _pointer(code: FunctionBuilder, word: Any) -> Pointer:
    return Pointer(code.builder, code.builder.inttoptr(word, ADDRESS))


@functools.cache
def kernel(rows: int, columns: int, a_stride: int) -> Any:
    """Return the microkernel for this machine as a C function of two integers: the argument block's address, and 0."""
    target = host()
    loaded = jit.load(build, target, rows, columns // target.lanes, a_stride)
    address = ctypes.cast(loaded, ctypes.c_void_p).value  # type: ignore[arg-type]
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(address or 0)
