"""A program of the neural processor: its tensors in DRAM, its instructions, and the layers that they compute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mlhood.compiler.backends.nmp.isa.instruction import NmpInstruction
from mlhood.compiler.backends.nmp.machine import Machine

KINDS = ("input", "output", "constant", "scratch")


@dataclass(frozen=True)
class DramTensor:
    """A tensor in DRAM, dense.

    Args:
        name: Unique in the program.
        kind: "input" and "output" are the program's; a "constant" has data; "scratch" lies between layers.
        element: Element type, as in a `TensorType`.
        shape: Length of each axis.
        address: Of its first byte.
        data: A constant's elements, of this type and shape.
    """

    name: str
    kind: str
    element: str
    shape: tuple[int, ...]
    address: int
    data: np.ndarray | None = field(default=None, compare=False)

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * np.dtype(self.element).itemsize


@dataclass(frozen=True)
class NmpLayer:
    """The instructions of one layer, or of several that are fused.

    Args:
        name: Of its last node.
        first: Number of its first instruction.
        end: Number of the instruction after its last one, which is a barrier.
        slicing: How it is sliced, as text for reports.
    """

    name: str
    first: int
    end: int
    slicing: str = ""


@dataclass(frozen=True)
class NmpProgram:
    """What the machine executes.

    Args:
        name: Of the model.
        machine: The machine it was generated for.
        tensors: All tensors in DRAM, by name; scratch tensors and outputs may share memory when their lifetimes differ.
        instructions: In program order.
        layers: Consecutive parts of the instructions.
    """

    name: str
    machine: Machine
    tensors: Mapping[str, DramTensor]
    instructions: tuple[NmpInstruction, ...]
    layers: tuple[NmpLayer, ...]

    def of_kind(self, kind: str) -> list[DramTensor]:
        """Return the tensors of a kind, in the order of declaration."""
        return [tensor for tensor in self.tensors.values() if tensor.kind == kind]
