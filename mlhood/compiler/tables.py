"""The tables that P2 fills: LeNet on the processor as it is, optimised and quantised, beside ONNX Runtime."""

from __future__ import annotations

from mlhood.measure.claims import Claim, agree, faster
from mlhood.measure.table import Table

STAGES = ("as it is", "optimised", "quantised")
"""Graphs: as imported; after all passes; and in integers of 8 bits."""
ONNX_RUNTIME: str = "ONNX Runtime"
"""The last column of the table of latencies, beside the stages."""
IMAGES: dict[str, int] = {"1 image": 1, "16 images": 16}
"""The rows of the table of latencies: batch sizes by their names."""


def latency_table() -> Table:
    """Return the empty table of P2: time for one image and for several, of each stage and of ONNX Runtime."""
    return Table(
        "P2.latency",
        rows=tuple(IMAGES),
        columns=(*STAGES, ONNX_RUNTIME),
        unit="us",
        title="LeNet on one core: as it is, optimised (after all passes), quantised, and by ONNX Runtime",
        baseline="as it is",
        claims=(faster("optimised", "as it is"), agree("optimised", "as it is")),
    )


def costs_table() -> Table:
    """Return the empty table of P2: bytes of memory for one image, and digits read right, of each stage."""
    smaller = "quantised needs less than half of the memory of optimised"
    right = "quantised reads at least 99 % of the digits that optimised reads"
    return Table(
        "P2.costs",
        rows=("bytes", "digits"),
        columns=STAGES,
        unit="",
        title="LeNet's memory for one image, and how many of the test images it reads right",
        kind="count",
        claims=(
            Claim(smaller, ("bytes", "quantised"), "<", ("bytes", "optimised"), 0.5),
            Claim(right, ("digits", "quantised"), ">", ("digits", "optimised"), 0.99),
        ),
    )
