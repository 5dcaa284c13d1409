"""The neural processor as numbers: tiles, tilelets, their memories and multipliers, the DRAM behind them.

R. Sousa and others, Tensor Slicing and Optimization for Multicore NPUs, 2023, arXiv:2304.03013; where public sources
give no number, the default is a choice of this course.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache

from mlhood.errors import CompilerError


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
        least = {"blobs": 4, "blob_bytes": 64, "macs_per_cycle": 2}
        least |= {"issue_cycles": 0, "barrier_cycles": 0, "latency_cycles": 0}
        for table in (self, self.dram):
            for each in fields(table):
                value, low = getattr(table, each.name), least.get(each.name, 1)
                if each.type == "int" and (type(value) is not int or value < low):
                    expected = f"an integer, {low} or more"
                    raise CompilerError(
                        f"invalid {each.name} of a machine", where=self.name, expected=expected, got=repr(value)
                    )

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
        return self.macs_per_cycle // element_bytes

    def address_text(self, address: int) -> str:
        """Return an address of a tilelet's memory as instructions write it: blob and offset, such as b2+0x0100."""
        blob, offset = divmod(address, self.blob_bytes)
        return f"b{blob}+{offset:#06x}"


@cache
def default_machine() -> Machine:
    """Return the machine of the course: 4 tiles of 8 tilelets."""
    return Machine(
        name="NMP 4x8",
        tiles=4,
        tilelets=8,
        blobs=4,
        blob_bytes=8192,
        macs_per_cycle=16,
        clock_hz=1_000_000_000,
        issue_cycles=1,
        barrier_cycles=16,
        dram=Dram(bytes=2**30, burst_bytes=128, burst_cycles=15, latency_cycles=60),  # 8,533 MB/s
        # 45 nm, Horowitz 2014 (multiply, add, 8 KiB SRAM, DRAM), linear in bytes; 16-bit products are estimated
        energy=Energy(mac_8=0.23, mac_16=0.8, idle_mac=0.02, blob_byte=1.25, dram_byte=162.5),
    )
