"""Weights as the neural processor loads them: slice by slice, bias first, each from a new burst."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.compiler.backends.nmp.codegen.slicing import ALIGNMENT, Slicing, parts
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.stages import Stage, Work


class PackedWeights:
    """The slices of a layer's weights, one after another in memory.

    Args:
        stages: The layer's stages.
        slicing: How it is cut.
        alignment: Of each slice, in bytes.

    Attributes:
        bytes: Of all slices.
        filters: First and end of each slice's filters.
        channels: First and end of each slice's input channels.
    """

    def __init__(self, stages: Sequence[Stage], slicing: Slicing, alignment: int) -> None:
        self.stages = tuple(stages)
        self.filters = parts(stages[-1].filters, slicing.filters)
        multiplies = stages[0].multiplies
        self.channels = parts(stages[0].channels, slicing.channels) if multiplies else [(0, stages[0].channels)]
        self._addresses: dict[tuple[int, int], int] = {}
        self.bytes = 0
        for j in range(len(self.filters)):
            for k in range(len(self.channels)):
                self._addresses[j, k] = self.bytes
                self.bytes += ceil_div(self.size(j, k), alignment) * alignment

    def address(self, j: int, k: int) -> int:
        """Return where the slice of filters j and channels k begins."""
        return self._addresses[j, k]

    def size(self, j: int, k: int) -> int:
        """Return the bytes of a slice."""
        return self.offsets(j, k)[-1]

    def offsets(self, j: int, k: int) -> list[int]:
        """Return where each stage's weights begin in a slice, and the slice's size.

        Those of the stages after the first are in the last slice of channels.
        """
        filters = self.filters[j][1] - self.filters[j][0]
        channels = self.channels[k][1] - self.channels[k][0]
        found, end = [], 0
        for n, stage in enumerate(self.stages):
            found.append(end)
            if not n or k == len(self.channels) - 1:
                size = stage.weight_bytes(filters, channels, first=not k)
                end = found[-1] + size
                if n < len(self.stages) - 1:
                    end = ceil_div(end, ALIGNMENT) * ALIGNMENT
        return [*found, end]

    def pack(self, works: Sequence[Work]) -> np.ndarray:
        """Return the slices of these arrays: uint8 [bytes]."""
        memory = np.zeros(self.bytes, np.uint8)
        for (j, k), address in self._addresses.items():
            offsets = self.offsets(j, k)
            for n, work in enumerate(works):
                if work.weights is None or (n and k < len(self.channels) - 1):
                    continue
                data = self._slice(work, n, j, k)
                start = address + offsets[n]
                memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
        return memory

    def _slice(self, work: Work, n: int, j: int, k: int) -> bytes:
        weights = np.asarray(work.weights)
        if work.stage.kind == "table":
            return weights.tobytes()
        filters = slice(*self.filters[j])
        bias = b"" if k and not n else np.asarray(work.bias, np.int32)[filters].tobytes()
        if work.stage.multiplies:
            return bias + np.ascontiguousarray(weights[filters, slice(*self.channels[k])]).tobytes()
        return bias + np.ascontiguousarray(weights[filters]).tobytes()
