"""An array with its dataflow, the products that it computes, and their cycles in closed form.

After Samajdar et al., "A Systematic Methodology for Characterizing Scalability of DNN Accelerators using SCALE-Sim"
(ISPASS 2020, table III and equations 3 to 5): two dimensions of the product M x K by K x N are mapped to the array's
rows and columns, the third to time. A product larger than the array is divided into folds, which run one after another.

| dataflow | along rows | along columns | in time |
|----------|------------|---------------|---------|
| ws       | K          | N             | M       |
| is       | K          | M             | N       |
| os       | M          | N             | K       |
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from mlhood.errors import DataflowError

# the operand that stays in a processing element while the others stream through
DATAFLOWS = {"ws": "weight stationary", "is": "input stationary", "os": "output stationary"}


@dataclass(frozen=True)
class Array:
    """R x C processing elements.

    Args:
        rows: R.
        columns: C.
        dataflow: One of `DATAFLOWS`.

    Raises:
        DataflowError: A size is not a positive integer, or the dataflow is unknown.
    """

    rows: int
    columns: int
    dataflow: str

    def __post_init__(self) -> None:
        if self.dataflow not in DATAFLOWS:
            raise DataflowError("unknown dataflow", expected=", ".join(DATAFLOWS), got=repr(self.dataflow))
        _check_sizes("array", self.rows, self.columns)


@dataclass(frozen=True)
class Product:
    """A product of M x K by K x N; a convolution's M are its output pixels, N its filters, K the elements of a window.

    Raises:
        DataflowError: A size is not a positive integer.
    """

    name: str
    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        _check_sizes(self.name, self.m, self.n, self.k)


@dataclass(frozen=True)
class Counts:
    """Cycles of a product on an array whose memories never stall it.

    Args:
        cycles: From the first operand that enters to the last output that leaves; SCALE-Sim reports one less, the
            index of the last cycle.
        folds: Number of folds.
        utilisation: Fraction of elements times cycles that multiplied.
    """

    cycles: int
    folds: int
    utilisation: float


def _check_sizes(where: str, *sizes: int) -> None:
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise DataflowError("invalid size", where=where, expected="positive integers", got=sizes)


def count(product: Product, array: Array) -> Counts:
    """Return the cycles in closed form.

    Stationary weights or inputs are shifted in through R cycles first. Then the last of T operands enters the first row
    T - 1 cycles after the first one, the last row R - 1 cycles later, and reaches the last column another C - 1 later.
    """
    _, m, n, k = astuple(product)
    down, across, steps = {"ws": (k, n, m), "is": (k, m, n), "os": (m, n, k)}[array.dataflow]
    folds = -(-down // array.rows) * -(-across // array.columns)
    loading = 0 if array.dataflow == "os" else array.rows
    cycles = folds * (loading + array.rows + array.columns + steps - 2)
    return Counts(cycles, folds, m * n * k / (cycles * array.rows * array.columns))


def resnet_layers() -> list[Product]:
    """Return C1 to C4, the 3x3 convolutions of ResNet's four stages with padding 1 (He et al., 2016, table 1)."""
    stages = {"C1": (64, 56), "C2": (128, 28), "C3": (256, 14), "C4": (512, 7)}
    return [Product(name, size * size, width, 9 * width) for name, (width, size) in stages.items()]
