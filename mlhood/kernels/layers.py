"""The convolutions of well-known networks, each distinct one once, for tests and benches."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.kernels.geometry import Geometry, geometry


@dataclass(frozen=True)
class Layer:
    """A square convolution of a network, for one image.

    Args:
        channels: C.
        size: Height and width of the input.
        filters: F.
        kernel: Height and width of the kernel.
        stride: In both directions.
        groups: 1, or as many as channels.
    """

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def name(self) -> str:
        """For a table: `64x56x56 -> 64, 3x3` and so on."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"{self.channels}x{self.size}x{self.size} -> {self.filters}, {self.kernel}x{self.kernel}{stride}{groups}"

    @property
    def padding(self) -> int:
        """Zeros on each side: half the kernel."""
        return self.kernel // 2

    @property
    def geometry(self) -> Geometry:
        """The sizes."""
        x = (1, self.channels, self.size, self.size)
        w = (self.filters, self.channels // self.groups, self.kernel, self.kernel)
        return geometry(x, w, self.stride, self.padding, 1, self.groups)


def _bottleneck(channels: int, width: int, size: int, stride: int) -> list[Layer]:
    """The first and the second block of a stage of ResNet-50 (V1.5: the stride is in the 3x3 convolution)."""
    small, out = size // stride, 4 * width
    first = [
        Layer(channels, size, width, 1),
        Layer(width, size, width, 3, stride),
        Layer(width, small, out, 1),
        Layer(channels, size, out, 1, stride),
    ]
    return [*first, Layer(out, small, width, 1), Layer(width, small, width, 3)]


def resnet50() -> list[Layer]:
    """Return the distinct convolutions of ResNet-50 at 224 x 224, in the order of the network."""
    stages = [(64, 64, 56, 1), (256, 128, 56, 2), (512, 256, 28, 2), (1024, 512, 14, 2)]
    layers = [Layer(3, 224, 64, 7, 2), *(layer for stage in stages for layer in _bottleneck(*stage))]
    return list(dict.fromkeys(layers))
