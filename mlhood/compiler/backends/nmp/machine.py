"""The neural processor as numbers: tiles, tilelets, their memories and multipliers, the DRAM behind them.

R. Sousa and others, Tensor Slicing and Optimization for Multicore NPUs, 2023, arXiv:2304.03013; where public sources
give no number, the default is a choice of this course.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from mlhood.errors import CompilerError
from mlhood.files.paths import did_you_mean

MAX_UNITS = 64  # tiles, and tilelets of a tile: as many as a mask of an instruction has bits
_ELEMENT_BYTES = (1, 2)
_MAX_NUMBER = 2**48


@dataclass(frozen=True)
class Dram:
    """The memory outside of the processor, behind one DMA engine.

    Args:
        bytes: Its size.
        burst_bytes: What is transferred at once, from an aligned address.
        burst_cycles: Processor cycles per burst.
        latency_cycles: From the last burst of a transfer until its data can be used; transfers overlap in it.
    """

    bytes: int
    burst_bytes: int
    burst_cycles: int
    latency_cycles: int


@dataclass(frozen=True)
class Energy:
    """Energy in picojoules.

    Args:
        mac_8: A multiply-accumulate of 8-bit factors.
        mac_16: One of 16-bit factors.
        idle_mac: A multiplier that has no work, for a cycle of a computation.
        blob_byte: Reading or writing a byte of a blob.
        dram_byte: Transferring a byte of a burst.
    """

    mac_8: float
    mac_16: float
    idle_mac: float
    blob_byte: float
    dram_byte: float


@dataclass(frozen=True)
class Machine:
    """A neural processor.

    Args:
        name: For reports.
        tiles: Number of tiles.
        tilelets: Number of tilelets in each tile.
        blobs: Number of memories in each tilelet.
        blob_bytes: Size of each.
        macs_per_cycle: Multipliers of a tilelet, for elements of one byte; for two bytes, half of them.
        clock_hz: Cycles per second.
        issue_cycles: Cycles to decode an instruction.
        barrier_cycles: Cycles of a barrier, after the last tilelet has reached it.
        dram: The memory outside.
        energy: Energy by event.

    Raises:
        CompilerError: A number is out of range.
    """

    name: str
    tiles: int
    tilelets: int
    blobs: int
    blob_bytes: int
    macs_per_cycle: int
    clock_hz: int
    issue_cycles: int
    barrier_cycles: int
    dram: Dram
    energy: Energy = field(repr=False)

    def __post_init__(self) -> None:
        ranges = {"tiles": (1, MAX_UNITS), "tilelets": (1, MAX_UNITS), "blobs": (4, 64), "macs_per_cycle": (2, 65536)}
        ranges |= {"blob_bytes": (64, 2**30), "issue_cycles": (0, 2**20), "barrier_cycles": (0, 2**20)}
        _check_table(self, self.name, ranges)
        ranges = {"bytes": (1024, 2**40), "burst_bytes": (1, 65536), "latency_cycles": (0, 2**20)}
        _check_table(self.dram, f"{self.name}: dram", ranges)
        _check_table(self.energy, f"{self.name}: energy", {})

    @property
    def units(self) -> int:
        """Number of tilelets in all."""
        return self.tiles * self.tilelets

    @property
    def memory_bytes(self) -> int:
        """Bytes of a tilelet's blobs together: its addresses are 0 to this, exclusive."""
        return self.blobs * self.blob_bytes

    def lanes(self, element_bytes: int) -> int:
        """Return how many elements of 1 or 2 bytes a tilelet computes with in a cycle."""
        if element_bytes not in _ELEMENT_BYTES:
            raise CompilerError("invalid size of an element", where=self.name, expected="1 or 2", got=element_bytes)
        return self.macs_per_cycle // element_bytes

    def peak(self, element_bytes: int = 1) -> int:
        """Return the multiply-accumulates per second of the whole machine."""
        return self.units * self.lanes(element_bytes) * self.clock_hz

    @property
    def bandwidth(self) -> float:
        """Bytes per second of the DRAM."""
        return self.dram.burst_bytes * self.clock_hz / self.dram.burst_cycles

    def address_text(self, address: int) -> str:
        """Return an address of a tilelet's memory as instructions write it: blob and offset, such as b2+0x0100."""
        blob, offset = divmod(address, self.blob_bytes)
        return f"b{blob}+{offset:#06x}"


def _check_table(table: Any, where: str, ranges: Mapping[str, tuple[int, int]]) -> None:
    """Check the numbers of a machine: integers from 1, or from ranges; energies are not negative."""
    for each in fields(table):
        value = getattr(table, each.name)
        kind = str(each.type)
        if kind == "int":
            low, high = ranges.get(each.name, (1, _MAX_NUMBER))
            if type(value) is not int or not low <= value <= high:
                raise _invalid(where, each.name, f"an integer from {low:,} to {high:,}", value)
        elif kind == "float" and (type(value) not in (int, float) or not 0 <= value < float("inf")):
            raise _invalid(where, each.name, "a number, 0 or more", value)
        elif kind == "str" and (not isinstance(value, str) or not value or len(value) > 80):
            raise _invalid(where, each.name, "1 to 80 characters", value)


def _invalid(where: object, name: str, expected: str, got: object) -> CompilerError:
    return CompilerError(f"invalid {name} of a machine", where=where, expected=expected, got=repr(got))


@cache
def default_machine() -> Machine:
    """Return the machine of the course: 4 tiles of 8 tilelets, see `machine.toml`."""
    return parse_machine(
        (files("mlhood.compiler.backends.nmp") / "machine.toml").read_text(encoding="utf-8"), "machine.toml"
    )


def read_machine(path: str | Path) -> Machine:
    """Return the machine that a TOML file describes; what it leaves out is the default machine's.

    Raises:
        CompilerError: The file cannot be read, is not TOML, or has an unknown or invalid entry.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        todo = did_you_mean(path)
        raise CompilerError("the machine's file cannot be read", where=path, got=error, todo=todo) from error
    return parse_machine(text, path, default_machine())


def parse_machine(text: str, where: object = None, default: Machine | None = None) -> Machine:
    """Return the machine of a TOML text; see `read_machine`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CompilerError("the machine's file is not TOML", where=where, got=error) from error
    return machine_from_table(table, where, default)


def machine_from_table(table: Mapping[str, Any], where: object = None, default: Machine | None = None) -> Machine:
    """Return the machine of nested mappings, as TOML and JSON have them; see `read_machine`."""
    if not isinstance(table, Mapping):
        raise CompilerError("a machine must be a table", where=where, got=type(table).__name__)
    return _build(Machine, table, where, default)


_TABLES: dict[str, type] = {"dram": Dram, "energy": Energy}


def _build(cls: type, table: Mapping[str, Any], where: object, default: Any) -> Any:
    names = [each.name for each in fields(cls)]
    if unknown := sorted(set(table) - set(names)):
        raise CompilerError(
            "unknown entry in a machine's file", where=where, expected=", ".join(names), got=", ".join(unknown)
        )
    values: dict[str, Any] = {}
    for each in fields(cls):
        inherited = getattr(default, each.name, MISSING)
        value = table.get(each.name, inherited)
        if value is MISSING:
            raise CompilerError("an entry is missing in a machine's file", where=where, expected=each.name)
        if each.name in _TABLES and each.name in table:
            if not isinstance(value, Mapping):
                raise CompilerError("an entry must be a table", where=where, expected=f"[{each.name}]", got=value)
            value = _build(_TABLES[each.name], value, where, None if inherited is MISSING else inherited)
        values[each.name] = value
    return cls(**values)
