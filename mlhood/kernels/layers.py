"""The convolutions of well-known networks, for tests and benchmarks."""

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
        groups: 1, or the number of channels.
        pad: Zeros on each side; half the kernel by default.
    """

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1
    pad: int | None = None

    @property
    def name(self) -> str:
        """Name for a table: `64x56x56 -> 64, 3x3`."""
        stride = f"/{self.stride}" if self.stride > 1 else ""
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"{self.channels}x{self.size}x{self.size} -> {self.filters}, {self.kernel}x{self.kernel}{stride}{groups}"

    @property
    def padding(self) -> int:
        """Zeros on each side."""
        return self.kernel // 2 if self.pad is None else self.pad

    @property
    def geometry(self) -> Geometry:
        """Its geometry."""
        x = (1, self.channels, self.size, self.size)
        w = (self.filters, self.channels // self.groups, self.kernel, self.kernel)
        return geometry(x, w, self.stride, self.padding, 1, self.groups)


def distinct(layers: list[Layer]) -> list[Layer]:
    """Return the distinct layers, in order of first appearance."""
    return list(dict.fromkeys(layers))


def _stage(channels: int, width: int, size: int, stride: int, blocks: int) -> list[Layer]:
    """Return a stage of ResNet-50 (V1.5: the stride is in the 3x3 convolution)."""
    small, out = size // stride, 4 * width
    downsampling = [
        Layer(channels, size, width, 1),
        Layer(width, size, width, 3, stride),
        Layer(width, small, out, 1),
        Layer(channels, size, out, 1, stride),
    ]
    block = [Layer(out, small, width, 1), Layer(width, small, width, 3), Layer(width, small, out, 1)]
    return [*downsampling, *block * (blocks - 1)]


def resnet50() -> list[Layer]:
    """Return the convolutions of ResNet-50 at 224 x 224 (He et al., 2016), in the order of the network."""
    stages = [(64, 64, 56, 1, 3), (256, 128, 56, 2, 4), (512, 256, 28, 2, 6), (1024, 512, 14, 2, 3)]
    return [Layer(3, 224, 64, 7, 2), *(layer for stage in stages for layer in _stage(*stage))]


def mobilenet_v2() -> list[Layer]:
    """Return the convolutions of MobileNetV2 at 224 x 224 (Sandler et al., 2018, table 2)."""
    layers, channels, size = [Layer(3, 224, 32, 3, 2)], 32, 112
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for factor, filters, blocks, first_stride in rows:
        for stride in [first_stride] + [1] * (blocks - 1):
            wide = factor * channels
            if factor > 1:
                layers.append(Layer(channels, size, wide, 1))
            layers.append(Layer(wide, size, wide, 3, stride, groups=wide))
            size //= stride
            layers.append(Layer(wide, size, filters, 1))
            channels = filters
    return [*layers, Layer(channels, size, 1280, 1)]


def squeezenet() -> list[Layer]:
    """Return the convolutions of SqueezeNet 1.1 at 224 x 224 (Iandola et al., 2016)."""
    layers, channels = [Layer(3, 224, 64, 3, 2, pad=0)], 64
    fires = [(55, 16), (55, 16), (27, 32), (27, 32), (13, 48), (13, 48), (13, 64), (13, 64)]
    for size, squeezed in fires:
        expanded = 4 * squeezed
        layers += [Layer(channels, size, squeezed, 1), Layer(squeezed, size, expanded, 1)]
        layers.append(Layer(squeezed, size, expanded, 3))
        channels = 2 * expanded
    return [*layers, Layer(channels, 13, 1000, 1)]


def vgg16() -> list[Layer]:
    """Return the convolutions of VGG-16 at 224 x 224 (Simonyan and Zisserman, 2015, column D)."""
    layers, channels, size = [], 3, 224
    for filters, count in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(count):
            layers.append(Layer(channels, size, filters, 3))
            channels = filters
        size //= 2
    return layers


NETWORKS = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "squeezenet": squeezenet, "vgg16": vgg16}
