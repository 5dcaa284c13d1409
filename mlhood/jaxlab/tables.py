"""The table that P5 fills: every operator of ResNet-18 with and without JAX."""

from __future__ import annotations

from mlhood.measure.claims import Claim, agree
from mlhood.measure.table import Table

FUSED, NETWORK = "conv + bn + relu", "ResNet-18"
OPERATORS = ("conv", "batch norm", "relu", "max pool", "add", "global average pool", "dense", "softmax")
ROWS = (*OPERATORS, FUSED, NETWORK)
NO_JAX, JAX = "No-JAX", "JAX"


def operators_table() -> Table:
    """Return the empty table of P5: what is claimed of JAX is claimed of what it can fuse, not of each operator."""
    return Table(
        "P5.operators",
        rows=ROWS,
        columns=(NO_JAX, JAX),
        unit="ms",
        title="Operators of ResNet-18, in NumPy and in JAX",
        baseline=NO_JAX,
        claims=(
            agree(JAX, NO_JAX),
            *(Claim(f"JAX is faster in {row}", (row, JAX), "<", (row, NO_JAX)) for row in (FUSED, NETWORK)),
        ),
    )
