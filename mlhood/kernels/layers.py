"""A convolution of a network, for tables and benchmarks."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.kernels.geometry import Geometry, geometry


@dataclass(frozen=True)
class Layer:
    """A convolution with a square input and kernel, for one image.

    Args:
        channels: C.
        size: Height and width of the input.
        filters: F.
        kernel: Height and width of the kernel.
        stride: In both directions.
    """

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1

    @property
    def name(self) -> str:
        """Name for a table: `64x56x56 -> 64, 3x3`."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.channels}x{self.size}x{self.size} -> {self.filters}, {self.kernel}x{self.kernel}{stride}"

    @property
    def padding(self) -> int:
        """Zeros on each side: half the kernel."""
        return self.kernel // 2

    @property
    def geometry(self) -> Geometry:
        """Its geometry."""
        x = (1, self.channels, self.size, self.size)
        return geometry(x, (self.filters, self.channels, self.kernel, self.kernel), self.stride, self.padding)
