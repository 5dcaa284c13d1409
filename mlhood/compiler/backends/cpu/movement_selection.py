"""The choice of kernels for what only moves elements, of any type: copies between strided positions of two buffers.

Where an operator's reference semantics is a view in NumPy, its strides are those of the copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.machine import CpuSetup, Rule, Selection, shape
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.lir.instructions import Buffer, Compute, Copy, Instruction
from mlhood.compiler.operators.blocked import ToBlocked, ToPlain
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.movement import Concat, Expand, Slice, Transpose
from mlhood.compiler.operators.padding import Pad
from mlhood.kernels import strided_copy
from mlhood.kernels.strided_copy import Fill

_ITEMSIZES = (1, 2, 4, 8)
_MAX_AXES = 8  # of a copy; some may be merged


def select_movement(instruction: Instruction, machine: CpuSetup) -> Selection | None:
    """Return the native calls of an instruction that moves elements; None if it computes, or is no such copy."""
    if isinstance(instruction, Copy):
        whole = np.empty(shape(instruction.target), np.uint8)
        return _copies([(instruction.source, whole, whole)], instruction.target, machine)
    if not isinstance(instruction, Compute):
        return None
    rule = MOVEMENT_RULES.get(type(instruction.operator))
    buffers = (*instruction.results, *instruction.reads)
    if rule is None or any(b.type.dtype.itemsize not in _ITEMSIZES or b.type.rank > _MAX_AXES for b in buffers):
        return None
    return rule(instruction.operator, instruction, machine)


def _view(operator: Operator, instruction: Compute, machine: CpuSetup) -> Selection | None:
    """Select a copy from where the operator's result would be a view of its input."""
    source, target = instruction.reads[0], instruction.results[0]
    memory = np.empty(shape(source), np.uint8)
    view, whole = operator.evaluate(memory), np.empty(shape(target), np.uint8)
    if memory.size and view.size and not np.may_share_memory(view, memory):
        return None
    return _copies([(source, _part(memory, view), whole)], target, machine)


def _concat(operator: Concat, instruction: Compute, machine: CpuSetup) -> Selection | None:
    target = instruction.results[0]
    whole, start, parts = np.empty(shape(target), np.uint8), 0, []
    for source in instruction.reads:
        memory = np.empty(shape(source), np.uint8)
        length = memory.shape[operator.axis]
        index = (slice(None),) * (operator.axis % whole.ndim)
        parts.append((source, memory, _part(whole, whole[(*index, slice(start, start + length))])))
        start += length
    return _copies(parts, target, machine)


def _pad(operator: Pad, instruction: Compute, machine: CpuSetup) -> Selection | None:
    source, target, pads = instruction.reads[0], instruction.results[0], tuple(map(int, operator.pads))
    if operator.mode != "constant" or min(pads, default=0) < 0 or not isinstance(operator.value, int | float):
        return None
    whole, memory = np.empty(shape(target), np.uint8), np.empty(shape(source), np.uint8)
    middle = whole[tuple(slice(b, b + n) for b, n in zip(pads, memory.shape, strict=False))]
    value: Any = np.asarray(operator.value, target.type.dtype)[()]
    return _copies([(source, memory, _part(whole, middle))], target, machine, fill=value)


def _change_layout(operator: ToBlocked | ToPlain, instruction: Compute, machine: CpuSetup) -> Selection | None:
    """Select copies between channels and blocks of them: of the full blocks, and of the channels that are left."""
    source, target = instruction.reads[0], instruction.results[0]
    is_to_blocked = isinstance(operator, ToBlocked)
    plain, blocked = (source, target) if is_to_blocked else (target, source)
    batch, channels, *image = shape(plain)
    blocks, lanes, pixels = shape(blocked)[1], shape(blocked)[-1], math.prod(image)
    full, rest = divmod(channels, lanes)
    of_channels = np.empty((batch, channels, pixels), np.uint8)
    of_blocks = np.empty((batch, blocks, pixels, lanes), np.uint8)
    pairs = [(of_channels[:, : full * lanes].reshape(batch, full, lanes, pixels).swapaxes(2, 3), of_blocks[:, :full])]
    pairs += [(of_channels[:, full * lanes :].swapaxes(1, 2), of_blocks[:, full, :, :rest])] if rest else []
    parts = [(_part(of_channels, some), _part(of_blocks, others)) for some, others in pairs]
    if is_to_blocked:
        return _copies([(source, *part) for part in parts], target, machine, fill=0 if rest else None)
    return _copies([(source, there, here) for here, there in parts], target, machine)


class _Box(np.ndarray):
    """A view that knows where it starts in the array that it is a part of."""

    offset: int = 0


def _part(whole: np.ndarray, view: np.ndarray) -> np.ndarray:
    """Return a view with its offset in bytes from the start of an array."""
    box = view.view(_Box)
    addresses = [array.__array_interface__["data"][0] for array in (view, whole)]
    box.offset = addresses[0] - addresses[1] if view.size else 0
    return box


def _copies(
    parts: Sequence[tuple[Buffer, np.ndarray, np.ndarray]], target: Buffer, machine: CpuSetup, fill: Fill | None = None
) -> Selection | None:
    """Return a copy for each part: its buffer, the elements read in it, and those written in the target.

    The elements are views of arrays of one byte per element, so that strides count elements. None if there are none.
    """
    itemsize, calls, operands = target.type.dtype.itemsize, [], {"out": target}
    if 0 in shape(target):
        return None
    if fill is not None:
        whole = np.empty(shape(target), np.uint8)
        strides = whole.strides
        calls.append(strided_copy.prepare(whole.shape, strides, strides, itemsize, fill=fill, target=machine.target))
    for number, (source, read, written) in enumerate(parts):
        if 0 in read.shape:
            continue
        offsets = [getattr(box, "offset", 0) for box in (read, written)]
        call = strided_copy.prepare(
            read.shape, read.strides, written.strides, itemsize, *offsets, target=machine.target
        )
        name = f"x{number}"
        calls.append(replace(call, operands={name if key == "x" else key: word for key, word in call.operands.items()}))
        operands[name] = source
    return Selection(tuple(calls), operands)


MOVEMENT_RULES: dict[type[Operator], Rule] = {
    Transpose: _view,
    Slice: _view,
    Expand: _view,
    Identity: _view,
    Concat: _concat,
    Pad: _pad,
    ToBlocked: _change_layout,
    ToPlain: _change_layout,
}
