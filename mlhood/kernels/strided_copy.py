"""Copies of boxes between strided positions of two buffers as native calls.

With them a compiler moves data: a transposition permutes the strides; a slice has an offset, and strides that are
multiples or negative; an operand that is expanded has strides of 0; the parts of a concatenation have offsets in the
result, those of a split in the source; padding is a box that is filled, and then a copy into its middle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit, strided_copy_kernel
from mlhood.kernels.codegen.strided_copy_kernel import FIELDS, OPERANDS, Inner, Source
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import TASK, Dimension, collapsed, loop_values
from mlhood.kernels.native import NativeCall, native_call

_INTEGERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_BLOCK = 128  # columns of a block that is transposed; with 64 rows of 4 bytes it fits into 32 KiB

Fill = np.generic | int


def prepare(
    shape: Sequence[int],
    source_strides: Sequence[int],
    target_strides: Sequence[int],
    itemsize: int,
    source_offset: int = 0,
    target_offset: int = 0,
    fill: Fill | None = None,
    target: Target | None = None,
) -> NativeCall:
    """Return a call that sets out[target_offset + i . target_strides] = x[source_offset + i . source_strides].

    i runs over the indices of the shape; "x" and "out" must not overlap. Nothing else in "out" is written.

    Args:
        shape: Sizes of the box; at most 8 axes are left after those of size 1 are dropped and adjacent ones are merged.
        source_strides: In elements, by axis; 0 repeats an element.
        target_strides: In elements, by axis; not 0, and no two indices may have the same position.
        itemsize: Bytes of an element: 1, 2, 4 or 8.
        source_offset, target_offset: Position of the first element in its buffer, in elements.
        fill: If not None, all elements are set to this value, and there is no operand "x": a NumPy scalar of the
            itemsize (`np.float32(1)`), or an integer whose lowest bytes are stored.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If the numbers of axes differ, the itemsize is invalid, the scalar has another one, or target
            positions coincide because of a stride of 0.
    """
    if not len(shape) == len(source_strides) == len(target_strides):
        got = [list(shape), list(source_strides), list(target_strides)]
        raise KernelError("shape and strides differ in their number of axes", expected="the same number", got=got)
    if itemsize not in _INTEGERS:
        raise KernelError("invalid size of an element", expected=f"one of {list(_INTEGERS)} bytes", got=itemsize)
    if any(size > 1 and not stride for size, stride in zip(shape, target_strides, strict=True)):
        got = f"shape {list(shape)}, strides {list(target_strides)}"
        raise KernelError("elements of the box have the same position", expected="target strides other than 0", got=got)
    bits = 0 if fill is None else _bits(fill, itemsize)
    sources = target_strides if fill is not None else source_strides  # a box that is filled has only its own strides
    dimensions, inner, source = _plan(shape, target_strides, sources, itemsize)
    if fill is not None:
        source = "fill"
    transposes = len(dimensions) > 1 and dimensions[-2].strides[1] == 1 and dimensions[-1].strides[0] == 1
    most_columns = _BLOCK if transposes else TASK
    values = loop_values(dimensions, OPERANDS, most_columns=most_columns)
    values |= {"out_offset": target_offset, "x_offset": source_offset, "fill": bits, "x": 0}
    kernel = jit.load(strided_copy_kernel.build, target or host(), inner, source, itemsize)
    operands = ("out",) if fill is not None else OPERANDS
    return native_call(kernel, FIELDS, values, operands, name="copy" if fill is None else "fill")


def _bits(fill: Fill, itemsize: int) -> int:
    """Return the bytes of a value as an integer, sign-extended to 64 bits as the argument block has it."""
    if isinstance(fill, np.generic):
        if fill.nbytes != itemsize:
            expected = f"a scalar of {itemsize} bytes"
            raise KernelError("the fill value has another size than the elements", expected=expected, got=repr(fill))
        fill = int(np.frombuffer(fill.tobytes(), _INTEGERS[itemsize])[0])
    return (int(fill) + 2**63) % 2**64 - 2**63


def _plan(
    shape: Sequence[int], target_strides: Sequence[int], source_strides: Sequence[int], itemsize: int
) -> tuple[list[Dimension], Inner, Source]:
    """Return the loop nest, and how its rows are copied: axes are ordered by their strides in the result."""
    axes = sorted(range(len(shape)), key=lambda axis: -abs(target_strides[axis]))
    axes = [axis for axis in axes if shape[axis] != 1]
    ordered = [[strides[axis] for axis in axes] for strides in (target_strides, source_strides)]
    dimensions = collapsed([shape[axis] for axis in axes], ordered)
    out_step, x_step = dimensions[-1].strides
    if out_step == 1 and x_step in (0, 1):
        return dimensions, "vectors", "strided" if x_step else "single"
    contiguous = [d for d in range(len(dimensions) - 1) if dimensions[d].strides[1] == 1]
    if out_step != 1 or not contiguous:
        return dimensions, "elements", "strided"
    rows = dimensions.pop(contiguous[-1])
    dimensions.insert(-1, rows)
    return dimensions, "transpose" if itemsize == 4 else "elements", "strided"
