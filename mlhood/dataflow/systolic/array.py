"""An array with its dataflow and memories, and the layers that it runs: products of M x K by K x N."""

from __future__ import annotations

from dataclasses import dataclass, fields

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


@dataclass(frozen=True)
class ArrayLayer:
    """A convolution of one image, or a matrix product written as one.

    Padding is part of the image: a 3x3 convolution of 56 x 56 with padding 1 has height and width 58.

    Args:
        name: For reports.
        height: Of the image, padding included.
        width: Of the image, padding included.
        kernel_height: Rows of the window.
        kernel_width: Columns of the window.
        channels: C.
        filters: F, the N of the matrix product.
        stride_height: Rows from one window to the next.
        stride_width: Columns from one window to the next.

    Raises:
        DataflowError: A size is not a positive integer, or the window is larger than the image.
    """

    name: str
    height: int
    width: int
    kernel_height: int
    kernel_width: int
    channels: int
    filters: int
    stride_height: int = 1
    stride_width: int = 1

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                what = f"invalid {field.name} of a layer"
                raise DataflowError(what, where=self.name, expected="a positive integer", got=repr(value))
        if self.kernel_height > self.height or self.kernel_width > self.width:
            raise DataflowError(
                "the window is larger than the image",
                where=self.name,
                expected=f"at most {self.height} x {self.width}",
                got=f"{self.kernel_height} x {self.kernel_width}",
                todo="add the padding to the image's height and width",
            )

    @property
    def out_height(self) -> int:
        """Rows of the output. As in SCALE-Sim, a last window that extends beyond the edge counts."""
        return -(-(self.height - self.kernel_height) // self.stride_height) + 1

    @property
    def out_width(self) -> int:
        """Columns of the output, counted like its rows."""
        return -(-(self.width - self.kernel_width) // self.stride_width) + 1

    @property
    def m(self) -> int:
        """Rows of the product: output pixels."""
        return self.out_height * self.out_width

    @property
    def n(self) -> int:
        """Columns of the product: filters."""
        return self.filters

    @property
    def k(self) -> int:
        """Terms of each sum: elements of a window."""
        return self.kernel_height * self.kernel_width * self.channels

    @property
    def macs(self) -> int:
        """Multiply-accumulates: M N K."""
        return self.m * self.n * self.k


def gemm_layer(name: str, m: int, n: int, k: int) -> ArrayLayer:
    """Return the product [M, K] by [K, N] as a layer: an image of M rows, in which each window is a row of K."""
    return ArrayLayer(name, height=m, width=k, kernel_height=1, kernel_width=k, channels=1, filters=n)


def resnet_layers() -> list[ArrayLayer]:
    """Return C1 to C4, the 3x3 convolutions of ResNet's four stages with padding 1 (He et al., 2016, table 1)."""
    stages = {"C1": (64, 56), "C2": (128, 28), "C3": (256, 14), "C4": (512, 7)}
    return [ArrayLayer(name, size + 2, size + 2, 3, 3, width, width) for name, (width, size) in stages.items()]
