"""The generated microkernel behind an interface that code compiled by Numba can call."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, Code, Pointer
from mlhood.kernels.codegen.microkernel import Shape, Tile, microkernel
from mlhood.kernels.codegen.target import Target, host

FIELDS = ("a", "b", "table", "rounds", "output", "row")  # addresses, trip count of the reduction, stride in elements


def build(target: Target, rows: int, vectors: int, a_stride: int) -> str:
    """Return a module whose function `kernel(plan, wait)` adds one tile's product to the output, as LLVM IR.

    Args:
        target: The processor.
        rows: Rows of the tile.
        vectors: Its columns, in vectors.
        a_stride: Elements of a from one row to the next.
    """
    module = ir.Module()
    multiply = microkernel(module, "multiply", Shape(Tile(rows, vectors, target.lanes), a_stride, a="table"), target)
    code = Code(module, "kernel", {"plan": ADDRESS, "wait": INDEX})
    words = code.pointer("plan", INDEX)
    word = {name: words.at(i).integer() for i, name in enumerate(FIELDS)}
    address = {name: _pointer(code, word[name].value) for name in ("a", "b", "table", "output")}
    null, limits = ir.Constant(ADDRESS, None), [ir.Constant(FLOAT, float(end)) for end in ("-inf", "inf")]
    tile = (address["output"], word["row"])
    arguments = (address["a"], address["b"], address["table"], word["rounds"], *tile, *tile)
    code.call(multiply, *arguments, null, null, *limits)
    code.done()
    return str(module)


def _pointer(code: Code, word: Any) -> Pointer:
    return Pointer(code.builder, code.builder.inttoptr(word, ADDRESS))


@functools.cache
def kernel(rows: int, columns: int, a_stride: int) -> Any:
    """Return the microkernel for this machine as a C function of two integers: the plan's address, and 0."""
    target = host()
    loaded = jit.load(build, target, rows, columns // target.lanes, a_stride)
    address = ctypes.cast(loaded, ctypes.c_void_p).value  # type: ignore[arg-type]
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(address or 0)
