"""The table that P5 fills: every operator of ResNet-18 with and without JAX."""

from __future__ import annotations

from mlhood.jaxlab.operators.cases import FUSED, NETWORK, ROWS
from mlhood.measure.claims import Claim, agree
from mlhood.measure.table import Table

NO_JAX, JAX = "No-JAX", "JAX"


def operators_table() -> Table:
    """Return P5's empty table; it claims that JAX is faster where XLA can fuse, not for every single operator."""
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
