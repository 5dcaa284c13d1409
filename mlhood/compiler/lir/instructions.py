"""Buffers, the instructions that work on them, and the names of these.

An instruction names memory, not values: a buffer is written, read and written again. After Glow's low-level IR (Rotem
et al., Glow: Graph Lowering Compiler Techniques for Neural Networks, arXiv:1805.00907, section 3.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.integer_elementwise import Lookup, Pair
from mlhood.compiler.operators.reinterpret import Reinterpret
from mlhood.compiler.operators.rescale import Rescale
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.errors import CompilerError

Access = Literal["@in", "@out", "@inout"]
Kind = Literal["input", "constant", "output"]
# Name of the instruction by the name of the operator; an operator that is not here is lowered to a `call`.
OPCODES: dict[str, str] = {
    "Conv": "convolution",
    "ConvTranspose": "convtranspose",
    "MatMul": "matmul",
    "Gemm": "gemm",
    "FullyConnected": "fullyconnected",
    "BatchNormalization": "batchnorm",
    "LocalResponseNormalization": "localresponsenorm",
    "Softmax": "softmax",
    "MaxPool": "maxpool",
    "AveragePool": "avgpool",
    "GlobalMaxPool": "globalmaxpool",
    "GlobalAveragePool": "globalavgpool",
    "Relu": "relu",
    "LeakyRelu": "leakyrelu",
    "Clip": "clip",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Add": "elementadd",
    "Sub": "elementsub",
    "Mul": "elementmul",
    "Div": "elementdiv",
    "Max": "elementmax",
    "Min": "elementmin",
    "Pow": "elementpow",
    "Where": "elementselect",
    "AddActivation": "elementaddactivation",
    "Transpose": "transpose",
    "Concat": "concat",
    "Slice": "extracttensor",
    "Pad": "pad",
    "Gather": "gather",
    "Expand": "broadcast",
    "Cast": "convertto",
    "Quantize": "quantize",
    "Dequantize": "dequantize",
    "Rescale": "rescalequantized",
    "Lookup": "intlookuptable",
    "ToBlocked": "toblocked",
    "ToPlain": "toplain",
    "BlockedConv": "blockedconvolution",
    "BlockedMaxPool": "blockedmaxpool",
    "BlockedAveragePool": "blockedavgpool",
    "BlockedGlobalAveragePool": "blockedglobalavgpool",
    "ElementwiseChain": "elementchain",
    "BlockedQuantizedConv": "blockedquantizedconvolution",
    "BlockedQuantizedAveragePool": "blockedquantizedavgpool",
    "BlockedQuantizedGlobalAveragePool": "blockedquantizedglobalavgpool",
    "QuantizedConv": "quantizedconvolution",
    "QuantizedFullyConnected": "quantizedfullyconnected",
    "QuantizedAdd": "quantizedadd",
    "QuantizedMul": "quantizedmul",
    "QuantizedAveragePool": "quantizedavgpool",
    "QuantizedGlobalAveragePool": "quantizedglobalavgpool",
}
OPERATOR_OF = {opcode: operator for operator, opcode in OPCODES.items()}
COPIES = (Identity,)  # lowered to a `copy`
VIEWS = (Reshape, Flatten, Squeeze, Unsqueeze, Reinterpret)  # lowered to a `tensorview`
# Each element of the result depends on the elements at its own position only.
_ELEMENTWISE = (Elementwise, Pair, Rescale, Lookup)


@dataclass(frozen=True, eq=False)
class Buffer:
    """Typed memory.

    Args:
        name: Unique in the program.
        type: Element type, shape and quantisation.
    """

    name: str
    type: TensorType

    @property
    def bytes(self) -> int:
        """Size of the memory in bytes.

        Raises:
            CompilerError: An axis is dynamic.
        """
        dynamic = [axis for axis in self.type.shape if isinstance(axis, str)]
        if dynamic:
            raise CompilerError(
                "the size of a buffer with dynamic axes is unknown",
                where=f"buffer {self.name!r}",
                expected="a length for every axis",
                got=f"{self.type.element}{list(self.type.shape)}",
                todo=f"lower the graph with lengths: lower(graph, {{{dynamic[0]!r}: 1}})",
            )
        return self.type.dtype.itemsize * math.prod(int(axis) for axis in self.type.shape)


@dataclass(frozen=True, eq=False)
class Weight(Buffer):
    """A buffer that is declared, not allocated: an input, a constant or an output of the program.

    Args:
        kind: Only an "output" may be written.
        data: The elements of a constant, read-only.
    """

    kind: Kind
    data: np.ndarray | None = None


class Instruction:
    """Base of all instructions; they are immutable."""

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The buffers whose elements it reads."""
        return ()

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The buffers all of whose elements it writes."""
        return ()

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """All buffers that it names."""
        return (*self.writes, *self.reads)

    def renamed(self, new: Callable[[Buffer], Buffer]) -> Instruction:
        """Return the instruction with other buffers, each given by a function of the old one."""
        raise NotImplementedError


@dataclass(frozen=True)
class Alloc(Instruction):
    """Allocate the memory of an activation; its content is undefined."""

    buffer: Buffer

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer."""
        return (self.buffer,)

    def renamed(self, new: Callable[[Buffer], Buffer]) -> Alloc:
        """Return the allocation of another buffer."""
        return Alloc(new(self.buffer))


@dataclass(frozen=True)
class Dealloc(Instruction):
    """Free the memory of an activation, and with it all its views."""

    buffer: Buffer

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer."""
        return (self.buffer,)

    def renamed(self, new: Callable[[Buffer], Buffer]) -> Dealloc:
        """Return the deallocation of another buffer."""
        return Dealloc(new(self.buffer))


@dataclass(frozen=True)
class TensorView(Instruction):
    """Define a buffer of another type, and as many bytes, in the memory of an existing one; nothing is moved."""

    buffer: Buffer
    source: Buffer

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The view and what it is a view of."""
        return (self.buffer, self.source)

    def renamed(self, new: Callable[[Buffer], Buffer]) -> TensorView:
        """Return a view of another buffer; the view itself stays."""
        return TensorView(self.buffer, new(self.source))


@dataclass(frozen=True)
class Copy(Instruction):
    """Copy the elements of a buffer to another of the same type."""

    target: Buffer
    source: Buffer

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The source."""
        return (self.source,)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The target."""
        return (self.target,)

    def renamed(self, new: Callable[[Buffer], Buffer]) -> Copy:
        """Return a copy between other buffers."""
        return Copy(new(self.target), new(self.source))


@dataclass(frozen=True)
class Compute(Instruction):
    """Apply an operator: read the inputs, then write all elements of the results.

    Args:
        operator: The operator of the HIR, with its attributes.
        results: Where to write its outputs.
        inputs: Its inputs; None for an optional one that is left out.
        call: It is a call of the operator's generic implementation, for which the back end has no instruction.
    """

    operator: Operator
    results: tuple[Buffer, ...]
    inputs: tuple[Buffer | None, ...]
    call: bool = False

    @property
    def reads(self) -> tuple[Buffer, ...]:
        """The inputs that are not left out."""
        return tuple(buffer for buffer in self.inputs if buffer is not None)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        """The results."""
        return self.results

    @property
    def operands(self) -> list[tuple[Access, Buffer | None]]:
        """The buffers with how they are accessed; a single result that is also an input is one operand, @inout."""
        inputs: list[tuple[Access, Buffer | None]] = [("@in", buffer) for buffer in self.inputs]
        if len(self.results) != 1 or self.results[0] not in self.inputs:
            return [*(("@out", buffer) for buffer in self.results), *inputs]
        inputs[self.inputs.index(self.results[0])] = ("@inout", self.results[0])
        return inputs

    def renamed(self, new: Callable[[Buffer], Buffer]) -> Compute:
        """Return the instruction on other buffers."""
        inputs = tuple(None if buffer is None else new(buffer) for buffer in self.inputs)
        return replace(self, results=tuple(map(new, self.results)), inputs=inputs)


def may_overwrite(operator: Operator, result: TensorType, input: TensorType) -> bool:
    """Return whether an operator may write its result, of this type, into the memory of an input of this type."""
    same_positions = result.shape == input.shape and result.dtype.itemsize == input.dtype.itemsize
    return same_positions and isinstance(operator, _ELEMENTWISE)
