"""Running a nest: its loops as Python, compiled by Numba.

The compiler may add in another order (`reassoc`), multiply and add at once (`contract`) and forget the sign of zero.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.dataflow.nest.binding import distances
from mlhood.dataflow.nest.data import BYTES, Access, Bound
from mlhood.dataflow.nest.program import Program, Values
from mlhood.dataflow.nest.trips import trips
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

_WORDS = 6  # of a plan, see micro.FIELDS
_FREEDOM = {"reassoc", "contract", "nsz"}


class _Running(Program):
    def vector(self, values: Values) -> list[str]:
        """Call with the first lane's elements."""
        first, nest = values | {self.nest.names[-1]: 0}, self.nest
        accesses = [nest.output, *(nest.read(access) for access in nest.inputs)]
        operands = [f"{access.array}.ctypes.data, {access.offset.fixed(first)}" for access in accesses]
        lanes, (statement,) = nest.loops[-1].extent, self.statement(first)
        return [f"# {lanes} lanes from {statement}", f"_multiply_add(({', '.join(operands)}))"]

    def microkernel(self, bound: Bound, values: Values) -> list[str]:
        """Fill the plan's words, `micro.FIELDS`, and call."""
        nest = self.nest
        first = dict.fromkeys(nest.names[bound.depth :], 0)
        a, b, output = (_address(access, values | first) for access in (*_operands(nest, bound), nest.output))
        words = (a, b, "_table.ctypes.data", self._rounds(bound, values), output, nest.output.offset.of(bound.rows))
        return [*(f"_plan[{place}] = {word}" for place, word in enumerate(words)), "_microkernel(_plan.ctypes.data, 0)"]

    def _rounds(self, bound: Bound, values: Values) -> str:
        texts = [trips(self.nest, name, self.nest.names[: bound.depth]).text(values) for name in bound.sums]
        return " * ".join(texts)


def _operands(nest: Nest, bound: Bound) -> tuple[Access, Access]:
    return nest.read(nest.input(bound.a)), nest.read(nest.input(bound.b))


def _address(access: Access, values: Values) -> str:
    return f"{access.array}.ctypes.data + {BYTES} * ({access.offset.fixed(values)})"


def source(nest: Nest) -> str:
    """Return the function `run(inputs, output, buffers)`; with a microkernel also its plan and table."""
    program = _Running(nest)
    names = [access.array for access in nest.accesses] + [pack.buffer.array for pack in nest.packs]
    names += ["_plan", "_table"] if nest.bound else []
    return "\n".join([f"def run({', '.join(names)}):", *program.indented(program.lines()), ""])


def run(nest: Nest, arrays: Mapping[str, Any]) -> np.ndarray:
    """Return the output of the nest for these inputs."""
    given = _checked(nest, arrays)
    output = np.zeros(nest.output.shape, np.float32)
    buffers = [np.empty(pack.shape, np.float32) for pack in nest.packs]
    more = [np.zeros(_WORDS, np.int64), np.array(distances(nest, nest.bound), np.int64)] if nest.bound else []
    compiled(nest)(*given, output, *buffers, *more)
    return output


@functools.lru_cache(maxsize=256)
def compiled(nest: Nest) -> Any:
    """Return Numba's dispatcher for the function that `source` says."""
    from numba import njit

    scope: dict[str, Any] = {}
    if bound := nest.bound:
        from mlhood.dataflow.nest.micro import kernel

        spread = _operands(nest, bound)[0].offset.of(bound.rows)
        scope["_microkernel"] = kernel(nest.extents[bound.rows], nest.extents[bound.columns], spread)
    if nest.loops[-1].kind == "vectorised":
        from mlhood.dataflow.nest.vectors import multiply_add

        scope["_multiply_add"] = multiply_add(nest.loops[-1].extent, nest.steps)
    exec(compile(source(nest), "<loop nest>", "exec"), scope)  # noqa: S102 - made of checked names and integers
    return njit(nogil=True, fastmath=_FREEDOM)(scope["run"])


def _checked(nest: Nest, arrays: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the inputs in order, each in one piece.

    Raises:
        NestError: If one is missing, unknown, or of another shape or type.
    """
    names = [access.array for access in nest.inputs]
    if set(names) != arrays.keys():
        raise NestError("a nest runs on its inputs", expected=", ".join(names), got=", ".join(arrays) or "none")
    return [np.ascontiguousarray(_fitting(access, arrays[access.array])) for access in nest.inputs]


def _fitting(access: Access, array: Any) -> np.ndarray:
    if isinstance(array, np.ndarray) and array.dtype == np.float32 and array.shape == access.shape:
        return array
    got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    raise NestError("the array does not fit", where=access.array, expected=f"float32 {list(access.shape)}", got=got,
                    todo="a convolution's input has its padding around it: mlhood.kernels.conv.pad")  # fmt: skip
