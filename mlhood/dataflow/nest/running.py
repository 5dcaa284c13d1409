"""Compiled execution: a nest's loops as Python, compiled by Numba.

The compiler may reassociate sums (`reassoc`), fuse multiply-adds (`contract`) and ignore the sign of zero (`nsz`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlhood.dataflow.nest.binding import a_offsets
from mlhood.dataflow.nest.loop_nest import ELEMENT_BYTES, Access, Binding, LoopNest
from mlhood.dataflow.nest.program import Emitter, Values
from mlhood.dataflow.nest.space import trip_count
from mlhood.errors import NestError

_PLAN_WORDS = 6  # as many as native.FIELDS
_FASTMATH = {"reassoc", "contract", "nsz"}


class _Compiled(Emitter):
    def vector(self, values: Values) -> list[str]:
        """Call with the first lane's elements."""
        first, nest = values | {self.nest.names[-1]: 0}, self.nest
        accesses = [nest.output, *(nest.operand(access) for access in nest.inputs)]
        operands = [f"{access.array}.ctypes.data, {access.offset.substitute(first)}" for access in accesses]
        lanes, (statement,) = nest.loops[-1].extent, self.statement(first)
        return [f"# {lanes} lanes from {statement}", f"_multiply_add(({', '.join(operands)}))"]

    def microkernel(self, binding: Binding, values: Values) -> list[str]:
        """Fill the plan's words, `native.FIELDS`, and call."""
        nest, outside = self.nest, self.nest.names[: binding.depth]
        first = values | dict.fromkeys(nest.names[binding.depth :], 0)
        a, b, output = (_address(access, first) for access in (*_operands(nest, binding), nest.output))
        counts = [trip_count(nest, name, outside).code(values) for name in binding.reductions]
        row_stride = nest.output.offset.coefficient(binding.rows)
        words = (a, b, "_table.ctypes.data", " * ".join(counts), output, row_stride)
        return [*(f"_plan[{i}] = {word}" for i, word in enumerate(words)), "_microkernel(_plan.ctypes.data, 0)"]


def _operands(nest: LoopNest, binding: Binding) -> tuple[Access, Access]:
    return nest.operand(nest.input(binding.a)), nest.operand(nest.input(binding.b))


def _address(access: Access, values: Values) -> str:
    return f"{access.array}.ctypes.data + {ELEMENT_BYTES} * ({access.offset.substitute(values)})"


def source(nest: LoopNest) -> str:
    """Return the Python that `run` compiles: a function of inputs, output, buffers and the microkernel's arguments."""
    emitter = _Compiled(nest)
    names = [access.array for access in nest.accesses] + [pack.buffer.array for pack in nest.packs]
    names += ["_plan", "_table"] if nest.binding else []
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
    if nest.binding:
        buffers += [np.zeros(_PLAN_WORDS, np.int64), np.array(a_offsets(nest, nest.binding), np.int64)]
    compiled(nest)(*inputs, output, *buffers)
    return output


@functools.lru_cache(maxsize=256)
def compiled(nest: LoopNest) -> Any:
    """Return Numba's dispatcher for the function of `source`."""
    from numba import njit

    scope: dict[str, Any] = {}
    if binding := nest.binding:
        from mlhood.dataflow.nest.native import kernel

        a_stride = _operands(nest, binding)[0].offset.coefficient(binding.rows)
        scope["_microkernel"] = kernel(nest.extents[binding.rows], nest.extents[binding.columns], a_stride)
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
