"""Tables of instructions: their names, after Glow's, which operators need none, and which may work in place."""

from __future__ import annotations

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.integer_elementwise import Lookup, Pair
from mlhood.compiler.operators.reinterpret import Reinterpret
from mlhood.compiler.operators.rescale import Rescale
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze

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
    "QuantizedMatMul": "quantizedmatmul",
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


def may_overwrite(operator: Operator, result: TensorType, input: TensorType) -> bool:
    """Return whether an operator may write its result, of this type, into the memory of an input of this type."""
    same_positions = result.shape == input.shape and result.dtype.itemsize == input.dtype.itemsize
    return same_positions and isinstance(operator, _ELEMENTWISE)
