"""Drawn lifetimes of buffers: at random, and as the activations of U-Nets of drawn sizes have them."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.lir.program import Lifetime


def random_buffers(rng: np.random.Generator, *, equal: bool = False) -> list[Lifetime]:
    """Draw 25 to 50 buffers of 64 bytes to 64 KiB, most of which live for a few instructions.

    Buffers of equal size, such as those between layers of one shape, fit exactly where another one was.
    """
    count = int(rng.integers(25, 50))
    firsts, lengths = np.sort(rng.integers(0, 2 * count, count)).tolist(), rng.geometric(0.18, count).tolist()
    sizes = [64 * int(rng.integers(8, 512))] * count if equal else (2 ** rng.uniform(6, 16, count)).astype(int).tolist()
    rows = zip(sizes, firsts, lengths, strict=True)
    return [Lifetime(f"v{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]


def u_net(rng: np.random.Generator) -> list[Lifetime]:
    """Draw a U-Net of another width and resolution: on its way up, it joins what it computed on its way down.

    It is that of Ronneberger et al. (2015, figure 1): one buffer for each fused operator, float32, one image.
    """
    lifetimes: list[Lifetime] = []

    def add(channels: int, size: int, *inputs: int) -> int:
        """Add the result of an instruction that reads earlier ones, [channels, size, size], and return its number."""
        step = len(lifetimes)
        for number in inputs:
            lifetimes[number] = lifetimes[number]._replace(last=step)
        lifetimes.append(Lifetime(f"v{step}", 4 * channels * size * size, step, step))
        return step

    channels, size = int(rng.integers(24, 80)), int(rng.integers(96, 200))
    x, waiting = add(3, size), []
    for _ in range(4):
        x = add(channels, size, add(channels, size, x))
        waiting.append((x, channels, size))
        channels, size = 2 * channels, (size + 1) // 2
        x = add(channels // 2, size, x)
    x = add(channels, size, add(channels, size, x))
    for shortcut, channels, size in reversed(waiting):
        joined = add(2 * channels, size, add(channels, size, x), shortcut)
        x = add(channels, size, add(channels, size, joined))
    add(2, size, x)
    return lifetimes
