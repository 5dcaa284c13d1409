"""What stands in for an unsolved task of P2, so that the tasks after it are judged on their own."""

IMPORTING = """
from mlhood.compiler.operators import IMPORT_RULES as _RULES
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
relu, max_pool, conv = _RULES["Relu"], _RULES["MaxPool"], _RULES["Conv"]
lenet = import_model("lenet.onnx")
"""

TYPES = """
def infer_conv(x, w, strides, pads, dilations, group):
    return Conv(tuple(strides), tuple(pads), tuple(dilations), group).infer(x, w)
def infer_pool(x, kernel, strides, pads):
    return MaxPool(tuple(kernel), tuple(strides), tuple(pads), (1, 1)).infer(x)
"""

REWRITES = """
from mlhood.compiler.passes import PASSES as _PASSES
fold_batchnorm, fuse_relu = _PASSES["fold_batch_normalization"], _PASSES["fuse_activation"]
"""

PARAMETERS = """
from mlhood.compiler.quantize.schema import choose_parameters as _choose
def choose_parameters(low, high, schema):
    return _choose(low, high, schema=schema)
"""
