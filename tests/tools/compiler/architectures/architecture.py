"""What an entry of the zoo is: a network with seeded weights, and typical inputs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Input:
    """One input of a network.

    Args:
        shape: The length of each axis; "batch" is the batch's.
        below: Integers, int64, from 0 to below this; None for normally distributed float32.
        name: Its name in the exported file.
    """

    shape: tuple[int | str, ...]
    below: int | None = None
    name: str = "x"

    @property
    def batch_axis(self) -> int | None:
        """Which axis is the batch's; None if none is."""
        return self.shape.index("batch") if "batch" in self.shape else None

    def sample(self, batch: int, generator: torch.Generator) -> torch.Tensor:
        """Return a random tensor for a batch of this size."""
        shape = [batch if isinstance(axis, str) else axis for axis in self.shape]
        if self.below is None:
            return torch.randn(shape, generator=generator)
        return torch.randint(self.below, shape, generator=generator)


@dataclass(frozen=True)
class Architecture:
    """A kind of network, small.

    Args:
        name: In commands and tables, such as "lenet".
        build: Returns the module, with torch's default weights.
        inputs: What its `forward` takes.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Input, ...]

    def model(self) -> nn.Module:
        """Return the network in evaluation mode; the state of torch's generator is left as it was.

        Statistics and factors of normalisations are random as well, as after training: at their initial values they
        would hide what is computed from them.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.build()
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                _randomize(name, tensor.detach())
        return model.eval()

    def samples(self, batch: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
        """Return random inputs for a batch of this size.

        Args:
            batch: Number of images, sequences or points.
            seed: Of the random numbers.
        """
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.sample(batch, generator) for spec in self.inputs)


def _randomize(name: str, tensor: torch.Tensor) -> None:
    if name.endswith("running_var"):
        nn.init.uniform_(tensor, 0.5, 1.5)
    elif name.endswith("running_mean") or (tensor.ndim == 1 and name.endswith("bias")):
        nn.init.normal_(tensor, 0.0, 0.1)
    elif tensor.ndim == 1 and name.endswith("weight"):
        nn.init.normal_(tensor, 1.0, 0.1)


def image(channels: int = 3, side: int = 32) -> tuple[Input, ...]:
    """Return the inputs of a network for square images: float32 [batch, channels, side, side]."""
    return (Input(("batch", channels, side, side)),)


def tokens(length: int = 10, vocabulary: int = 50) -> tuple[Input, ...]:
    """Return the inputs of a network for token ids: int64 [batch, length]."""
    return (Input(("batch", length), vocabulary),)


def series(length: int, width: int) -> tuple[Input, ...]:
    """Return the inputs of a network for series of vectors: float32 [batch, length, width]."""
    return (Input(("batch", length, width)),)
