"""The array: its size, its dataflow, and the memories at its edges."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.errors import DataflowError

# the operand that stays in a processing element while the others stream through
DATAFLOWS = {"ws": "weight stationary", "is": "input stationary", "os": "output stationary"}


@dataclass(frozen=True)
class Array:
    """R x C processing elements with a double-buffered memory each for inputs, weights and outputs.

    Args:
        rows: R.
        columns: C.
        dataflow: One of `DATAFLOWS`.
        ifmap_kib: Memory for inputs, in KiB; a word has one byte, as in SCALE-Sim.
        filter_kib: Memory for weights.
        ofmap_kib: Memory for outputs.
        name: For reports.

    Raises:
        DataflowError: A size is not a positive integer, or the dataflow is unknown.
    """

    rows: int
    columns: int
    dataflow: str
    ifmap_kib: int = 64
    filter_kib: int = 64
    ofmap_kib: int = 64
    name: str = "array"

    def __post_init__(self) -> None:
        for field in ("rows", "columns", "ifmap_kib", "filter_kib", "ofmap_kib"):
            value = getattr(self, field)
            if not isinstance(value, int) or value < 1:
                what = f"invalid {field} of an array"
                raise DataflowError(what, where=self.name, expected="a positive integer", got=repr(value))
        if self.dataflow not in DATAFLOWS:
            expected = ", ".join(f"{short} ({long})" for short, long in DATAFLOWS.items())
            raise DataflowError("unknown dataflow", where=self.name, expected=expected, got=repr(self.dataflow))

    @property
    def elements(self) -> int:
        """Number of processing elements, R C."""
        return self.rows * self.columns
