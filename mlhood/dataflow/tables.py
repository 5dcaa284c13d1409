"""P4's tables of measurements: a sliced convolution, and a whole network with its convolutions in slices."""

from __future__ import annotations

from mlhood.dataflow.slicing.problem import Order
from mlhood.measure.claims import EVERY, Claim, agree
from mlhood.measure.table import Table

TRIPLES = ("analysed", "too small", "too large", "my own")
ORDERS: tuple[Order, ...] = ("WS", "IS")


def slicing_table() -> Table:
    """Return the empty table of P4 for one layer: four (k1, k2, k3), weight and input stationary."""
    faster = Claim("analysed is faster than too small in both orders", ("analysed", EVERY), "<", ("too small", EVERY))
    return _table("P4.slicing", "A sliced convolution of ResNet-18 by its tiles, weights and inputs stationary", faster)


def network_table() -> Table:
    """Return the empty table of P4 for the network, with the rows and columns of `slicing_table`.

    No row has to be the fastest: the triple of one layer is a guess for the others, and how much the rest of the
    network hides of it depends on the machine.
    """
    return _table("P4.network", "ResNet-18 with its 3x3 convolutions in slices, weights and inputs stationary")


def _table(name: str, title: str, *claims: Claim) -> Table:
    return Table(name, TRIPLES, ORDERS, "ms", title, baseline="WS", claims=(agree("WS", "IS"), *claims))
