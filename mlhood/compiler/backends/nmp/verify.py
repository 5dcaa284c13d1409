"""Checks of a program before it runs: tilelets, sizes, addresses, blobs."""

from __future__ import annotations

from collections.abc import Iterator

from mlhood.compiler.backends.nmp.isa.assembly import instruction_text
from mlhood.compiler.backends.nmp.isa.elementwise import Add, Dense, Rescale
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Extent, NmpInstruction, Store, Transfer, Units, Wait
from mlhood.compiler.backends.nmp.isa.windowed import Convolve, Depthwise, Pool, Windowed
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.program import NmpProgram
from mlhood.errors import CompilerError

MAX_SHIFT = 62
_MAX_MULTIPLIER = 2**52
_SIZES = ("run", "columns", "rows", "channels", "height", "width", "kernel_height", "kernel_width", "stride_height")
_SIZES += ("stride_width", "dilation_height", "dilation_width", "out_height", "out_width", "filters", "depth", "count")
_ADDRESSES = ("memory", "dram", "x", "w", "y", "a", "b", "table", "accumulators", "outstanding", "pad_top", "pad_left")
_ADDRESSES += ("column_stride", "row_stride", "a_shift", "b_shift")


def verify(program: NmpProgram) -> None:
    """Check what holds for every execution of a program.

    1. The tensors lie within the DRAM; constants and inputs overlap nothing; constants have data of their type.
    2. Tilelets exist; a store has one.
    3. Sizes are positive; elements have 1 or 2 bytes; limits are in the elements' range.
    4. Each operand lies within one blob, at a multiple of the size of its elements.

    Raises:
        CompilerError: A rule is violated; the error names the instruction and the address.
    """
    _check_tensors(program)
    seen: set[int] = set()  # ids of checked tilelets: a program shares a few
    for number, instruction in enumerate(program.instructions):
        for what, expected, got in _violations(instruction, program.machine, seen):
            where = location(program, number)
            raise CompilerError(what, where=where, expected=expected, got=got)


def location(program: NmpProgram, number: int) -> str:
    """Return an instruction for a message: layer, number, and its text."""
    layer = next((each.name for each in program.layers if each.first <= number < each.end), None)
    text = instruction_text(program.instructions[number], program.machine)
    return f"{'' if layer is None else f'layer {layer!r}, '}instruction {number}: {text}"


def _check_tensors(program: NmpProgram) -> None:
    limit, fixed = program.machine.dram.bytes, []
    for tensor in program.tensors.values():
        where = f"tensor {tensor.name!r}"
        if tensor.address + tensor.bytes > limit:
            got = f"{tensor.address:#x} + {tensor.bytes:,} bytes"
            raise CompilerError("a tensor exceeds the DRAM", where=where, expected=f"{limit:,} bytes", got=got)
        if tensor.kind == "constant" and (tensor.data is None or tensor.data.shape != tensor.shape):
            raise CompilerError("a constant has no data of its shape", where=where, expected=tensor.shape)
        fixed.append(tensor)
    fixed.sort(key=lambda tensor: tensor.address)
    reach, owner = 0, None  # of what may not be shared
    for tensor in fixed:
        shared = tensor.kind in ("scratch", "output") and (owner is None or owner.kind in ("scratch", "output"))
        if owner is not None and tensor.address < reach and not shared:
            raise CompilerError("two tensors overlap", where=f"tensor {tensor.name!r}", got=f"tensor {owner.name!r}")
        if tensor.address + tensor.bytes > reach:
            reach, owner = tensor.address + tensor.bytes, tensor


def _violations(instruction: NmpInstruction, machine: Machine, seen: set[int]) -> Iterator[tuple[str, object, object]]:
    """Yield what is wrong with an instruction: a sentence, what would be right, and what is there."""
    if isinstance(instruction, Barrier):
        return
    operands = instruction.operands
    yield from _of_units(operands["units"], machine, seen)  # type: ignore[arg-type]
    if isinstance(instruction, Store) and len(instruction.units) != 1:
        yield "a store has several tilelets", "one", len(instruction.units)
    for name, value in operands.items():
        if isinstance(value, int) and value < (1 if name in _SIZES else 0 if name in _ADDRESSES else value):
            yield f"invalid {name}", "1 or more" if name in _SIZES else "0 or more", value
    if isinstance(instruction, Wait):
        return
    if not isinstance(instruction, Transfer):
        yield from _of_arithmetic(instruction)
    else:
        last = (instruction.rows - 1) * instruction.row_stride + (instruction.columns - 1) * instruction.column_stride
        if instruction.dram + last + instruction.run > machine.dram.bytes:
            yield "the transfer exceeds the DRAM", f"{machine.dram.bytes:,} bytes", f"{instruction.dram:#x}"
    for extent in (*instruction.reads(), *instruction.writes()):
        yield from _of_extent(extent, machine)
    for address, size in alignments(instruction):
        if address % size:
            yield "an operand is not aligned", f"a multiple of {size}", machine.address_text(address)


def _of_units(units: Units, machine: Machine, seen: set[int]) -> Iterator[tuple[str, object, object]]:
    if id(units) in seen:
        return
    if units.tiles[-1] >= machine.tiles or units.tilelets[-1] >= machine.tilelets:
        yield "the machine has no such tilelet", f"t0-{machine.tiles - 1}.0-{machine.tilelets - 1}", units
    seen.add(id(units))


def _of_extent(extent: Extent, machine: Machine) -> Iterator[tuple[str, object, object]]:
    last = extent.address + extent.bytes - 1
    if last >= machine.memory_bytes or extent.address // machine.blob_bytes != last // machine.blob_bytes:
        room = machine.blob_bytes - extent.address % machine.blob_bytes
        got = f"{extent.bytes:,} bytes from {machine.address_text(extent.address)}"
        limit = machine.blobs if extent.address >= machine.memory_bytes else None
        expected = f"at most {room:,} bytes" if limit is None else f"blobs b0 to b{limit - 1}"
        yield "blob overflow", expected, got


def _of_arithmetic(instruction: NmpInstruction) -> Iterator[tuple[str, object, object]]:
    element, operands = instruction.operands.get("element", 1), instruction.operands
    if element not in (1, 2):
        yield "invalid size of an element", "1 or 2", element
        return
    limit = 1 << (8 * int(str(element)) - 1)
    low, high, shift = (operands.get(name, 0) for name in ("low", "high", "shift"))
    if not -limit <= low <= high < limit:  # type: ignore[operator]
        yield "invalid limits", f"{-limit} <= low <= high <= {limit - 1}", f"{low} to {high}"
    if not -MAX_SHIFT <= shift <= MAX_SHIFT:  # type: ignore[operator]
        yield "invalid shift", f"-{MAX_SHIFT} to {MAX_SHIFT}", shift
    if isinstance(instruction, Pool) and not 0 <= instruction.multiplier < _MAX_MULTIPLIER:
        yield "invalid multiplier", "0 to 2^52", instruction.multiplier
    if isinstance(instruction, Dense) and instruction.rows < 1:
        yield "invalid rows", "1 or more", instruction.rows
    if isinstance(instruction, Add):
        for size in (instruction.a_bytes, instruction.b_bytes):
            if size not in (instruction.element, 4 * instruction.element):
                yield "invalid size of an operand's elements", f"{element} or {4 * instruction.element}", size
        if max(instruction.a_shift, instruction.b_shift) > MAX_SHIFT:
            yield "invalid shift of an operand", f"0 to {MAX_SHIFT}", (instruction.a_shift, instruction.b_shift)


def alignments(instruction: NmpInstruction) -> Iterator[tuple[int, int]]:
    """Yield the address of each operand of an instruction that computes, and what it must be a multiple of."""
    match instruction:
        case Convolve() | Dense():
            yield from ((instruction.x, instruction.element), (instruction.w, 4 if instruction.first else 1))
            yield instruction.w, instruction.element
            if instruction.last:
                yield instruction.y, instruction.element
            if not (instruction.first and instruction.last):
                yield instruction.accumulators, 4 * instruction.element
        case Depthwise():
            yield from ((instruction.x, instruction.element), (instruction.y, instruction.element), (instruction.w, 4))
        case Windowed() | Rescale():
            yield from ((instruction.x, instruction.element), (instruction.y, instruction.element))
        case Add():
            yield from ((instruction.a, instruction.a_bytes), (instruction.b, instruction.b_bytes))
            yield instruction.y, instruction.element
