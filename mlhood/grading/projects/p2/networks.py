"""Drawn lifetimes of buffers: at random, and as the activations of U-Net and MobileNetV2 at drawn sizes have them.

The networks are those of Ronneberger et al. (2015, figure 1) and Sandler et al. (2018, table 2), one buffer for the
result of each fused operator, float32, one image.
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.lir.program import Lifetime

# expansion, channels, repeats and stride of MobileNetV2's stages
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class Activations:
    """Results of instructions, one each; reading one keeps it alive."""

    def __init__(self) -> None:
        self.lifetimes: list[Lifetime] = []

    def add(self, channels: float, size: int, *inputs: int) -> int:
        """Add the result of an instruction that reads earlier ones, [channels, size, size], and return its number."""
        step = len(self.lifetimes)
        for number in inputs:
            self.lifetimes[number] = self.lifetimes[number]._replace(last=step)
        self.lifetimes.append(Lifetime(f"v{step}", 4 * max(1, round(channels)) * size * size, step, step))
        return step


def random_buffers(rng: np.random.Generator) -> list[Lifetime]:
    """Draw 25 to 50 buffers of 64 bytes to 64 KiB, most of which live for a few instructions."""
    count = int(rng.integers(25, 50))
    firsts = np.sort(rng.integers(0, 2 * count, count)).tolist()
    sizes, lengths = (2 ** rng.uniform(6, 16, count)).astype(int).tolist(), rng.geometric(0.18, count).tolist()
    rows = zip(sizes, firsts, lengths, strict=True)
    return [Lifetime(f"v{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]


def equal_buffers(rng: np.random.Generator) -> list[Lifetime]:
    """Draw 25 to 50 buffers of one size, such as those between layers of one shape: each fits exactly where one was."""
    count, size = int(rng.integers(25, 50)), 64 * int(rng.integers(8, 512))
    firsts, lengths = np.sort(rng.integers(0, 2 * count, count)).tolist(), rng.geometric(0.18, count).tolist()
    rows = zip(firsts, lengths, strict=True)
    return [Lifetime(f"v{i}", size, first, first + length) for i, (first, length) in enumerate(rows)]


def u_net(rng: np.random.Generator) -> list[Lifetime]:
    """Draw a U-Net of another width and resolution: on its way up, it joins what it computed on its way down."""
    network, channels, size = Activations(), int(rng.integers(24, 80)), int(rng.integers(96, 200))
    x, waiting = network.add(3, size), []
    for _ in range(4):
        x = network.add(channels, size, network.add(channels, size, x))
        waiting.append((x, channels, size))
        channels, size = 2 * channels, (size + 1) // 2
        x = network.add(channels // 2, size, x)
    x = network.add(channels, size, network.add(channels, size, x))
    for shortcut, channels, size in reversed(waiting):
        joined = network.add(2 * channels, size, network.add(channels, size, x), shortcut)
        x = network.add(channels, size, network.add(channels, size, joined))
    network.add(2, size, x)
    return network.lifetimes


def inverted_residuals(rng: np.random.Generator) -> list[Lifetime]:
    """Draw a MobileNetV2 of another width and resolution: wide inside of a block, narrow between blocks."""
    network, size, width = Activations(), int(rng.integers(40, 128)), float(rng.uniform(0.6, 1.4))
    channels, x = 32, network.add(32 * width, size)
    for expansion, features, repeats, stride in STAGES:
        for repeat in range(repeats):
            inner, halved = expansion * channels * width, stride == 2 and repeat == 0
            wide = network.add(inner, size, x) if expansion > 1 else x
            size = (size + 1) // 2 if halved else size
            deep = network.add(inner, size, wide)
            added = repeat > 0
            x = network.add(features * width, size, deep, *((x,) if added else ()))
            channels = features
    network.add(1000, 1, network.add(1280, 1, network.add(1280 * width, size, x)))
    return network.lifetimes
