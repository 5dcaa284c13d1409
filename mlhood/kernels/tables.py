"""The tables that P3 fills with measurements of convolutions, and of the network that they are parts of."""

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


def model_table() -> Table:
    """Return the empty table of P3 for ResNet-18: the time of the model for each entry of the table of convolutions.

    In row C1, the convolutions like C1 are computed as the column says, all others by the package's `direct`; in row
    `all`, those like any of the four.
    """
    return Table(
        "P3.models",
        rows=(*RESNET18, "all"),
        columns=("no-BLAS", "BLAS"),
        unit="ms",
        title="ResNet-18, 112 x 112 pixels, with convolutions like C1 ... C4 by the definition, and by im2col and BLAS",
        baseline="no-BLAS",
        claims=(
            faster("BLAS", "no-BLAS", "the model with BLAS is faster than without in every row"),
            agree("BLAS", "no-BLAS", "both models compute the same in every row"),
        ),
    )
