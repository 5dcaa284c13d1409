"""The table that P5 fills: every operator of ResNet-18 with and without JAX."""

from __future__ import annotations

from mlhood.jaxlab.operators.cases import ROWS
from mlhood.measure.claims import agree
from mlhood.measure.table import Table

NO_JAX, JAX = "No-JAX", "JAX"


def operators_table() -> Table:
    """Return P5's empty table; which column is faster is measured, not claimed: it depends on the machine."""
    return Table(
        "P5.operators",
        rows=ROWS,
        columns=(NO_JAX, JAX),
        unit="ms",
        title="Operators of ResNet-18, in NumPy and in JAX",
        baseline=NO_JAX,
        claims=(agree(JAX, NO_JAX),),
    )
