"""P4's table of measurements of a sliced convolution."""

from __future__ import annotations

from mlhood.measure.claims import EVERY, Claim, agree
from mlhood.measure.table import Table

TRIPLES = ("analysed", "too small", "too large", "my own")


def slicing_table() -> Table:
    """Return the empty table of P4: four (k1, k2, k3), weight and input stationary."""
    faster = Claim("analysed is faster than too small in both orders", ("analysed", EVERY), "<", ("too small", EVERY))
    return Table(
        "P4.slicing",
        rows=TRIPLES,
        columns=("WS", "IS"),
        unit="ms",
        title="A sliced convolution of ResNet-18 by its tiles, weights and inputs stationary",
        baseline="WS",
        claims=(agree("WS", "IS"), faster),
    )
