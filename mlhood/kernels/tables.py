"""The table that P3 fills with measurements of convolutions."""

from __future__ import annotations

from mlhood.kernels.layers import Layer
from mlhood.measure.claims import agree, faster
from mlhood.measure.table import Table

RESNET18: dict[str, Layer] = {
    "C1": Layer(64, 56, 64, 3),
    "C2": Layer(128, 28, 128, 3),
    "C3": Layer(256, 14, 256, 3),
    "C4": Layer(512, 7, 512, 3),
}
"""The 3x3 convolutions of stride 1 in ResNet-18's four stages (He et al., 2016, table 1): equal numbers of operations,
different shapes."""


def convolution_table() -> Table:
    """Return the empty table of P3: a convolution by the definition, and by im2col and BLAS."""
    return Table(
        "P3.convolutions",
        rows=tuple(RESNET18),
        columns=("no-BLAS", "BLAS"),
        unit="ms",
        title="Convolutions of ResNet-18, by the definition and by im2col and BLAS",
        baseline="no-BLAS",
        claims=(faster("BLAS", "no-BLAS"), agree("BLAS", "no-BLAS")),
    )
