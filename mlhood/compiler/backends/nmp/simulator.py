"""The functional simulator: executes a program, and refuses what real hardware would get wrong.

It executes instructions in program order, in which all transfers are immediate; a program whose result could depend on
their timing is refused instead. That is so if a tilelet computes with the memory of its own transfer that may not be
complete, or if one tilelet reads or overwrites what another one has stored since the last barrier.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mlhood.compiler.backends.nmp.isa.assembly import instruction_text
from mlhood.compiler.backends.nmp.isa.computations import Computation
from mlhood.compiler.backends.nmp.isa.instruction import (
    Barrier,
    Load,
    NmpInstruction,
    Operand,
    Store,
    Transfer,
    Units,
    Wait,
    latest_conflict,
)
from mlhood.compiler.backends.nmp.program import DramTensor, NmpProgram
from mlhood.errors import CompilerError

# Stamps of bytes in DRAM, beside those of tilelets: what no tensor has, what is only read, and what is not written yet.
_NO_TENSOR, _READ_ONLY, _UNWRITTEN = -2, -1, 0
MAX_SIMULATED_BYTES = 2**31
MAX_SHIFT = 62
_FROM_ZERO = ("memory", "dram", "x", "w", "y", "a", "b", "accumulators", "pad_top", "pad_left", "a_shift", "b_shift")
_FROM_ZERO += ("outstanding", "column_stride", "row_stride", "first", "last")
# the least value of an operand, if it is not 1
_LEAST: dict[str, int] = dict.fromkeys(_FROM_ZERO, 0)
_LEAST |= {"shift": -MAX_SHIFT, "low": -(2**15), "high": -(2**15)}


def simulate(program: NmpProgram, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Execute a program once.

    Args:
        program: The program.
        inputs: An array for each tensor of kind "input", by name.

    Returns:
        The tensors of kind "output" by name.

    Raises:
        CompilerError: An input is missing or of another type, or an instruction violates a rule of the machine; the
            error names it and the address.
    """
    return Simulator(program).run(inputs)


class Simulator:
    """The state of the machine while it executes a program.

    Args:
        program: The program.
    """

    def __init__(self, program: NmpProgram) -> None:
        self.program, self.machine = program, program.machine
        self._memory = np.zeros((self.machine.units, self.machine.memory_bytes), np.uint8)
        self._written = np.zeros(self._memory.shape, np.bool_)
        self._in_flight: list[list[Transfer]] = [[] for _ in range(self.machine.units)]
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
        if size > min(self.machine.dram.bytes, MAX_SIMULATED_BYTES):
            expected = f"at most {min(self.machine.dram.bytes, MAX_SIMULATED_BYTES):,} bytes of DRAM"
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
        for what, expected, got in self._violations(instruction):
            raise self._error(what, expected=expected, got=got)
        match instruction:
            case Load() | Store():
                self._transfer(instruction)
            case Computation():
                self._compute(instruction)
            case Wait():
                for unit in self._units(instruction.units):
                    flights = self._in_flight[unit]
                    del flights[: max(0, len(flights) - instruction.outstanding)]
            case Barrier():
                self._epoch += 1
                for flights in self._in_flight:
                    flights.clear()

    def _violations(self, instruction: NmpInstruction) -> Iterator[tuple[str, object, object]]:
        """Yield what is wrong with an instruction, whenever it runs: what, what would be right, and what is there."""
        machine = self.machine
        values: dict[str, Any] = {each.name: getattr(instruction, each.name) for each in fields(instruction)}
        units: Any = values.get("units")
        if units and (units.tiles[-1] >= machine.tiles or units.tilelets[-1] >= machine.tilelets):
            yield "the machine has no such tilelet", f"t0-{machine.tiles - 1}.0-{machine.tilelets - 1}", units
        if isinstance(instruction, Store) and len(units) != 1:
            yield "a store has several tilelets", "one", len(units)
        for name, value in values.items():
            least = _LEAST.get(name, 1)
            if isinstance(value, int) and (value < least or ("shift" in name and value > MAX_SHIFT)):
                yield f"invalid {name}", f"{least} or more", value
        if (element := values.get("element", 1)) not in (1, 2):
            yield "invalid size of an element", "1 or 2", element
        limit = 1 << (8 * element - 1)
        if not -limit <= values.get("low", 0) <= values.get("high", 0) < limit:
            yield "invalid limits", f"{-limit} <= low <= high < {limit}", f"{values['low']} to {values['high']}"
        for operand in (*instruction.reads().values(), *instruction.writes()):
            room = machine.blob_bytes - operand.address % machine.blob_bytes
            if operand.bytes > room or operand.end > machine.memory_bytes:
                got = f"{operand.bytes:,} bytes from {machine.address_text(operand.address)}"
                yield "blob overflow", f"at most {room:,} bytes, in blobs b0 to b{machine.blobs - 1}", got
            if operand.address % operand.element:
                address = machine.address_text(operand.address)
                yield "an operand is not aligned", f"a multiple of {operand.element}", address

    def _units(self, units: Units) -> np.ndarray:
        numbers = self._numbers.get(units)
        if numbers is None:
            numbers = self._numbers[units] = np.array(units.numbers(self.machine.tilelets), np.int64)
        return numbers

    def _transfer(self, transfer: Transfer) -> None:
        units, operand = self._units(transfer.units), transfer.operand
        strides = (transfer.row_stride, transfer.column_stride, 1)
        last = sum((n - 1) * stride for n, stride in zip(operand.shape, strides, strict=True))
        if transfer.dram + last >= len(self._dram):
            raise self._error("the transfer is outside of all tensors", got=f"DRAM {transfer.dram + last:#x}")

        def runs(array: np.ndarray) -> np.ndarray:
            return as_strided(array[transfer.dram :], operand.shape, [array.itemsize * stride for stride in strides])

        barrier, stamps = self._epoch * self.machine.units, runs(self._stamps)
        part = slice(operand.address, operand.end)
        own = barrier + int(units[0]) + 1 if len(units) == 1 else _NO_TENSOR
        is_load = isinstance(transfer, Load)
        wrong = (stamps <= 0) & (stamps != _READ_ONLY) if is_load else stamps < 0
        wrong |= (stamps > barrier) & (stamps != own)  # stored by others since the barrier
        if wrong.any():
            place = np.unravel_index(wrong.argmax(), wrong.shape)
            raise self._dram_error(transfer.dram + int(np.dot(place, strides)), is_load)
        if is_load:
            self._memory[units, part] = runs(self._dram).reshape(-1)
            self._written[units, part] = True
        else:
            self._check_written(units, operand)
            runs(self._dram)[...] = self._memory[units[0], part].reshape(operand.shape)
            stamps[...] = own
        for unit in units:
            self._in_flight[unit].append(transfer)

    def _compute(self, instruction: Computation) -> None:
        units, reads, (target,) = self._units(instruction.units), instruction.reads(), instruction.writes()
        for operand in reads.values():
            self._check_written(units, operand)
        for unit, transfer in ((each, transfer) for each in units for transfer in self._in_flight[each]):
            if (conflict := latest_conflict([transfer], instruction)) is not None:
                is_load = isinstance(transfer, Load)
                what = "a load that may not be complete writes" if is_load else "a store may still read"
                raise self._error(
                    f"missing synchronisation: {what} what this instruction uses",
                    got=f"{self._tilelet(unit)}, {self.machine.address_text(conflict[1])}",
                    todo="put a wait before it",
                )
        arrays = {
            name: self._memory[units, o.address : o.end].view(f"int{8 * o.element}").reshape(len(units), *o.shape)
            for name, o in reads.items()
        }
        result = instruction.compute(**arrays).astype(f"int{8 * target.element}").reshape(len(units), -1)
        self._memory[units, target.address : target.end] = result.view(np.uint8)
        self._written[units, target.address : target.end] = True

    def _check_written(self, units: np.ndarray, operand: Operand) -> None:
        written = self._written[units, operand.address : operand.end]
        if not written.all():
            unit, offset = np.unravel_index(written.argmin(), written.shape)
            address = self.machine.address_text(operand.address + int(offset))
            raise self._error("memory is read that was never written", got=f"{self._tilelet(units[unit])}, {address}")

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
        layers = (each.name for each in self.program.layers if each.first <= self._number < each.end)
        text = instruction_text(self.program.instructions[self._number], self.machine)
        where = f"layer {next(layers, '')!r}, instruction {self._number}: {text}"
        return CompilerError(what, where=where, **parts)


def _bound(tensor: DramTensor, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the array of an input, which must have its type."""
    if tensor.name not in inputs:
        raise CompilerError("an input is missing", expected=tensor.name, got=", ".join(inputs) or "none")
    array = np.asarray(inputs[tensor.name])
    if array.dtype != np.dtype(tensor.element) or array.shape != tensor.shape:
        expected, got = f"{tensor.element}{list(tensor.shape)}", f"{array.dtype.name}{list(array.shape)}"
        raise CompilerError("an input has another type", where=f"input {tensor.name!r}", expected=expected, got=got)
    return array
