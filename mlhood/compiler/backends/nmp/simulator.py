"""The functional simulator: executes a program's binary code, and refuses what real hardware would get wrong.

It executes instructions in program order, in which all transfers are immediate; a program whose result could depend on
their timing is refused instead. That is so if a tilelet computes with the memory of its own transfer that may not be
complete, or if one tilelet reads or overwrites what another one has stored since the last barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp import arithmetic
from mlhood.compiler.backends.nmp.isa.elementwise import Add, Dense, Rescale, Table
from mlhood.compiler.backends.nmp.isa.encoding import decode, encode
from mlhood.compiler.backends.nmp.isa.instruction import (
    Barrier,
    Extent,
    Load,
    NmpInstruction,
    Store,
    Transfer,
    Units,
    Wait,
)
from mlhood.compiler.backends.nmp.isa.windowed import Convolve, Depthwise, Pool, Windowed
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.program import DramTensor, NmpProgram
from mlhood.compiler.backends.nmp.verify import location, verify
from mlhood.errors import CompilerError

# Stamps of bytes in DRAM, beside those of tilelets: what no tensor has, what is only read, and what is not written yet.
_NO_TENSOR, _READ_ONLY, _UNWRITTEN = -2, -1, 0
MAX_SIMULATED_BYTES = 2**31


def simulate(
    program: NmpProgram | bytes, inputs: Mapping[str, np.ndarray], machine: Machine | None = None
) -> dict[str, np.ndarray]:
    """Execute a program once.

    Args:
        program: A program, which is encoded first, or its binary code.
        inputs: An array for each tensor of kind "input", by name.
        machine: The machine to execute on, if it need not be the program's; it must equal it.

    Returns:
        The tensors of kind "output" by name.

    Raises:
        CompilerError: The code is invalid, an input is missing or of another type, the program was generated for
            another machine, or an instruction violates a rule of the machine; the error names it and the address.
    """
    decoded = decode(encode(program) if isinstance(program, NmpProgram) else program)
    if machine is not None and machine != decoded.machine:
        todo = "generate the program for this machine"
        raise CompilerError("the program is for another machine", expected=machine, got=decoded.machine, todo=todo)
    return Simulator(decoded).run(inputs)


class Simulator:
    """The state of the machine while it executes a program.

    Args:
        program: The program; it is verified.
    """

    def __init__(self, program: NmpProgram) -> None:
        verify(program)
        self.program, self.machine = program, program.machine
        units, size = self.machine.units, self.machine.memory_bytes
        padded = -(-size // 8) * 8
        self._memory = np.zeros((units, padded), np.uint8)
        self._views = {name: self._memory.view(name) for name in ("int8", "int16", "int32", "int64")}
        self._written = np.zeros((units, padded), np.bool_)
        self._in_flight: list[list[tuple[Extent, bool]]] = [[] for _ in range(units)]  # extents, and whether loads
        self._numbers: dict[Units, np.ndarray] = {}
        self._epoch = 0  # of barriers
        self._number = 0  # of the instruction that is executed

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Execute the program; see `simulate`."""
        self._reset_dram(inputs)
        for self._number, instruction in enumerate(self.program.instructions):  # noqa: B020 - the number is for errors
            self._execute(instruction)
        return {tensor.name: self._output(tensor) for tensor in self.program.of_kind("output")}

    def _reset_dram(self, inputs: Mapping[str, np.ndarray]) -> None:
        tensors = list(self.program.tensors.values())
        size = max((tensor.address + tensor.bytes for tensor in tensors), default=0)
        if size > MAX_SIMULATED_BYTES:
            expected = f"at most {MAX_SIMULATED_BYTES:,} bytes of DRAM"
            raise CompilerError("the program is too large to simulate", expected=expected, got=f"{size:,}")
        self._dram = np.zeros(size, np.uint8)
        self._stamps = np.full(size, _NO_TENSOR, np.int64)
        known = {tensor.name for tensor in self.program.of_kind("input")}
        if unknown := sorted(set(inputs) - known):
            raise CompilerError("unknown input", expected=", ".join(known), got=", ".join(unknown))
        for tensor in tensors:
            end = tensor.address + tensor.bytes
            data = _bound(tensor, inputs) if tensor.kind == "input" else tensor.data
            self._stamps[tensor.address : end] = _UNWRITTEN if data is None else _READ_ONLY
            if data is not None:
                self._dram[tensor.address : end] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def _output(self, tensor: DramTensor) -> np.ndarray:
        part = slice(tensor.address, tensor.address + tensor.bytes)
        if (self._stamps[part] == _UNWRITTEN).any():
            address = tensor.address + int((self._stamps[part] == _UNWRITTEN).argmax())
            where = f"output {tensor.name!r}"
            raise CompilerError("an output is never written", where=where, got=f"DRAM {address:#x}")
        return self._dram[part].view(tensor.element).reshape(tensor.shape).copy()

    def _execute(self, instruction: NmpInstruction) -> None:
        match instruction:
            case Load() | Store():
                self._transfer(instruction)
            case Wait():
                for unit in self._units(instruction.units):
                    flights = self._in_flight[unit]
                    del flights[: max(0, len(flights) - instruction.outstanding)]
            case Barrier():
                self._epoch += 1
                for flights in self._in_flight:
                    flights.clear()
            case _:
                self._compute(instruction)

    def _units(self, units: Units) -> np.ndarray:
        numbers = self._numbers.get(units)
        if numbers is None:
            numbers = self._numbers[units] = np.array(units.numbers(self.machine.tilelets), np.int64)
        return numbers

    def _transfer(self, transfer: Transfer) -> None:
        units, is_load = self._units(transfer.units), isinstance(transfer, Load)
        runs = (transfer.rows, transfer.row_stride, transfer.columns, transfer.column_stride)
        barrier = self._epoch * self.machine.units
        stamp = barrier + int(units[0]) + 1 if len(units) == 1 else -1
        extent = Extent(transfer.memory, transfer.bytes)
        end = extent.address + extent.bytes
        last = transfer.dram + (runs[0] - 1) * runs[1] + (runs[2] - 1) * runs[3] + transfer.run
        if last > len(self._dram):
            raise self._error("the transfer is outside of all tensors", got=f"DRAM {last - 1:#x}")
        arrays = (self._memory, self._dram, self._stamps)
        if is_load:
            bad = arithmetic.load(*arrays, units, transfer.memory, transfer.dram, runs, transfer.run, barrier, stamp)
            self._written[units, extent.address : end] = True
        else:
            self._check_written(units, extent)
            bad = arithmetic.store(
                *arrays, int(units[0]), transfer.memory, transfer.dram, runs, transfer.run, barrier, stamp
            )
        if bad >= 0:
            raise self._dram_error(int(bad), is_load)
        for unit in units:
            self._in_flight[unit].append((extent, is_load))

    def _compute(self, instruction: NmpInstruction) -> None:
        units = self._units(getattr(instruction, "units"))  # noqa: B009 - all that compute have it
        reads, writes = instruction.reads(), instruction.writes()
        for extent in reads:
            self._check_written(units, extent)
        for unit in units:
            if self._in_flight[unit]:
                self._check_complete(int(unit), reads, writes)
        _EXECUTE[type(instruction)](self._views, units, instruction)
        for extent in writes:
            self._written[units, extent.address : extent.address + extent.bytes] = True

    def _check_written(self, units: np.ndarray, extent: Extent) -> None:
        end = extent.address + extent.bytes
        unit, address = arithmetic.first_unwritten(self._written, units, extent.address, end)
        if unit >= 0:
            got = f"{self._tilelet(unit)}, {self.machine.address_text(address)}"
            raise self._error("memory is read that was never written", got=got)

    def _check_complete(self, unit: int, reads: tuple[Extent, ...], writes: tuple[Extent, ...]) -> None:
        for extent, is_load in self._in_flight[unit]:
            used = (*reads, *writes) if is_load else writes
            for other in used:
                start = max(extent.address, other.address)
                if start < min(extent.address + extent.bytes, other.address + other.bytes):
                    what = "a load that may not be complete writes" if is_load else "a store may still read"
                    got = f"{self._tilelet(unit)}, {self.machine.address_text(start)}"
                    raise self._error(
                        f"missing synchronisation: {what} what this instruction uses",
                        got=got,
                        todo="put a wait before it",
                    )

    def _dram_error(self, address: int, is_load: bool) -> CompilerError:
        stamp = int(self._stamps[address])
        owner = next((t for t in self.program.tensors.values() if t.address <= address < t.address + t.bytes), None)
        got = f"DRAM {address:#x}" + ("" if owner is None else f", byte {address - owner.address} of {owner.name!r}")
        if stamp == _NO_TENSOR:
            return self._error("the transfer is outside of all tensors", got=got)
        if stamp == _READ_ONLY:
            return self._error("a constant or an input is overwritten", got=got)
        if stamp == _UNWRITTEN:
            return self._error("memory is read that was never written", got=got)
        writer = self._tilelet((stamp - 1) % self.machine.units)
        what = f"missing synchronisation: {writer} has stored this since the last barrier"
        verb = "a load of" if is_load else "another store to"
        return self._error(what, got=f"{verb} {got}", todo="put a barrier before it")

    def _tilelet(self, unit: int) -> str:
        tile, tilelet = divmod(int(unit), self.machine.tilelets)
        return f"tilelet t{tile}.{tilelet}"

    def _error(self, what: str, **parts: Any) -> CompilerError:
        return CompilerError(what, where=location(self.program, self._number), **parts)


def _bound(tensor: DramTensor, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the array of an input, which must have its type."""
    if tensor.name not in inputs:
        raise CompilerError("an input is missing", expected=tensor.name, got=", ".join(inputs) or "none")
    array = np.asarray(inputs[tensor.name])
    if array.dtype != np.dtype(tensor.element) or array.shape != tensor.shape:
        expected, got = f"{tensor.element}{list(tensor.shape)}", f"{array.dtype.name}{list(array.shape)}"
        raise CompilerError("an input has another type", where=f"input {tensor.name!r}", expected=expected, got=got)
    return array


Views = Mapping[str, np.ndarray]


def _element_view(views: Views, bytes: int) -> np.ndarray:
    return views[f"int{8 * bytes}"]


def _shape(i: Windowed) -> tuple[int, ...]:
    return (i.channels, i.height, i.width, i.out_height, i.out_width)


def _window(i: Windowed) -> tuple[int, ...]:
    return (
        *(i.kernel_height, i.kernel_width, i.stride_height, i.stride_width),
        *(i.dilation_height, i.dilation_width, i.pad_top, i.pad_left),
    )


def _convolve(views: Views, units: np.ndarray, i: Convolve) -> None:
    e, wide = i.element, 4 * i.element
    weights = (i.w + 4 * i.filters * i.first) // e
    addresses = (i.x // e, weights, i.y // e, i.w // 4, i.accumulators // wide)
    arrays = (_element_view(views, e), views["int32"], _element_view(views, wide))
    scale = (i.shift, i.low, i.high)
    arithmetic.convolve(*arrays, units, *addresses, _shape(i), _window(i), i.filters, i.first, i.last, scale)


def _depthwise(views: Views, units: np.ndarray, i: Depthwise) -> None:
    e = i.element
    addresses = (i.x // e, (i.w + 4 * i.channels) // e, i.y // e, i.w // 4)
    accumulator = np.empty(0, f"int{32 * e}")
    scale = (i.shift, i.low, i.high)
    memory = _element_view(views, e)
    arithmetic.depthwise(memory, views["int32"], units, *addresses, _shape(i), _window(i), accumulator, scale)


def _dense(views: Views, units: np.ndarray, i: Dense) -> None:
    e, wide = i.element, 4 * i.element
    addresses = (i.x // e, (i.w + 4 * i.filters * i.first) // e, i.y // e, i.w // 4, i.accumulators // wide)
    arrays = (_element_view(views, e), views["int32"], _element_view(views, wide))
    sizes = (i.rows, i.depth, i.filters)
    arithmetic.dense(*arrays, units, *addresses, sizes, i.first, i.last, (i.shift, i.low, i.high))


def _pool(views: Views, units: np.ndarray, i: Pool) -> None:
    e, scale = i.element, (i.shift, i.low, i.high)
    memory = _element_view(views, e)
    arithmetic.pool(memory, units, i.x // e, i.y // e, _shape(i), _window(i), i.kind == "max", i.multiplier, scale)


def _add(views: Views, units: np.ndarray, i: Add) -> None:
    memory, a, b = (_element_view(views, size) for size in (i.element, i.a_bytes, i.b_bytes))
    addresses = (i.a // i.a_bytes, i.b // i.b_bytes, i.y // i.element)
    arithmetic.add(memory, a, b, units, *addresses, i.count, i.a_shift, i.b_shift, (i.shift, i.low, i.high))


def _rescale(views: Views, units: np.ndarray, i: Rescale) -> None:
    e, scale = i.element, (i.shift, i.low, i.high)
    arithmetic.rescale(_element_view(views, e), units, i.x // e, i.y // e, i.count, scale)


def _table(views: Views, units: np.ndarray, i: Table) -> None:
    arithmetic.look_up(views["int8"], units, i.x, i.table, i.y, i.count)


_EXECUTE: dict[type[NmpInstruction], Callable[[Views, np.ndarray, Any], None]] = {
    Convolve: _convolve,
    Depthwise: _depthwise,
    Dense: _dense,
    Pool: _pool,
    Add: _add,
    Rescale: _rescale,
    Table: _table,
}
