"""Compiled execution: a nest's loops as Python, compiled by Numba.

The compiler may reassociate sums (`reassoc`), fuse multiply-adds (`contract`) and ignore the sign of zero (`nsz`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.dataflow.nest.loop_nest import Access, LoopNest
from mlhood.dataflow.nest.program import Emitter, Values
from mlhood.errors import NestError

_FASTMATH = {"reassoc", "contract", "nsz"}


class _Compiled(Emitter):
    def vector(self, values: Values) -> list[str]:
        """Call with the first lane's elements."""
        first, nest = values | {self.nest.names[-1]: 0}, self.nest
        accesses = [nest.output, *(nest.operand(access) for access in nest.inputs)]
        operands = [f"{access.array}.ctypes.data, {access.offset.substitute(first)}" for access in accesses]
        lanes, (statement,) = nest.loops[-1].extent, self.statement(first)
        return [f"# {lanes} lanes from {statement}", f"_multiply_add(({', '.join(operands)}))"]


def source(nest: LoopNest) -> str:
    """Return the Python that `run` compiles: a function of inputs, output and buffers."""
    emitter = _Compiled(nest)
    names = [access.array for access in nest.accesses] + [pack.buffer.array for pack in nest.packs]
    return "\n".join([f"def run({', '.join(names)}):", *emitter.indented(emitter.lines()), ""])


def run(nest: LoopNest, /, **arrays: np.ndarray) -> np.ndarray:
    """Run the nest as compiled code, on one thread.

    Args:
        nest: The nest.
        arrays: The inputs by name, float32, of their accesses' shapes.

    Returns:
        The output, float32.

    Raises:
        NestError: If an input is missing, unknown, or of another shape or dtype.
    """
    inputs = _checked(nest, arrays)
    output = np.zeros(nest.output.shape, np.float32)
    buffers = [np.empty(pack.shape, np.float32) for pack in nest.packs]
    compiled(nest)(*inputs, output, *buffers)
    return output


@functools.lru_cache(maxsize=256)
def compiled(nest: LoopNest) -> Any:
    """Return Numba's dispatcher for the function of `source`."""
    from numba import njit

    scope: dict[str, Any] = {}
    if nest.loops[-1].kind == "vectorised":
        from mlhood.dataflow.nest.native import multiply_add

        scope["_multiply_add"] = multiply_add(nest.loops[-1].extent, nest.strides)
    exec(compile(source(nest), "<loop nest>", "exec"), scope)  # noqa: S102 - made of checked names and integers
    return njit(nogil=True, fastmath=_FASTMATH)(scope["run"])


def _checked(nest: LoopNest, arrays: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the inputs in order, contiguous."""
    names = [access.array for access in nest.inputs]
    if set(names) != arrays.keys():
        raise NestError("missing or unknown inputs", expected=", ".join(names), got=", ".join(arrays) or "none")
    return [np.ascontiguousarray(_checked_input(access, arrays[access.array])) for access in nest.inputs]


def _checked_input(access: Access, array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.dtype == np.float32 and array.shape == access.shape:
        return array
    raise NestError(
        "invalid shape or dtype of an input",
        where=access.array,
        expected=f"float32 {list(access.shape)}",
        got=f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__,
        todo="pad a convolution's input first: mlhood.kernels.conv.pad",
    )
