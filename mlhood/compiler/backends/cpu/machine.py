"""What kernels are prepared for, and the native calls that were chosen for an instruction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.weights import WeightCache
from mlhood.compiler.lir.instructions import Buffer, Compute, Weight
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.native import NativeCall


@dataclass(frozen=True)
class CpuSetup:
    """What kernels are prepared for.

    Args:
        target: The processor.
        threads: Number of threads.
        weights: Packed weights.
        exact: Whether NaN and infinities must reach exactly the results that depend on them: not so with Winograd's
            convolutions.
        room: Rows that a matrix of a buffer has room for, where these are more than it has.
    """

    target: Target
    threads: int
    weights: WeightCache
    exact: bool = False
    room: Mapping[Buffer, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Selection:
    """The native calls of an instruction.

    Args:
        calls: They run one after another.
        operands: The buffer of each operand by name; those that a call has and that are missing here are workspaces.
    """

    calls: tuple[NativeCall, ...]
    operands: Mapping[str, Buffer] = field(default_factory=dict)

    @property
    def workspace(self) -> dict[str, int]:
        """Bytes of each workspace, which keeps its content from the first call to the last."""
        sizes: dict[str, int] = {}
        for call in self.calls:
            for name, size in call.workspace.items():
                sizes[name] = max(size, sizes.get(name, 0))
        return sizes


Rule = Callable[[Any, Compute, CpuSetup], Selection | None]


def constant(buffer: Buffer | None) -> np.ndarray | None:
    """Return the array of a constant; None for a buffer that is none, or for an input that is left out."""
    return buffer.data if isinstance(buffer, Weight) else None


def shape(buffer: Buffer) -> tuple[int, ...]:
    """Return the shape of a buffer, which has no dynamic axes."""
    return tuple(int(axis) for axis in buffer.type.shape)
