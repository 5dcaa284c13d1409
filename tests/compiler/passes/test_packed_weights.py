"""Weights in blocks stay packed, as ONNX Runtime's quantiser writes them and by hand."""

from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.targets import prepare
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.passes import optimize
from tests.compiler.passes.building import kinds

K, F, BLOCK = 96, 40, 32
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((5, K), np.float32)


def model(nodes, element, weight, scale, zero=None, bias=None):
    """Return a model of opset 21 with x [n, K] and y, whose first node dequantises w."""
    axis = weight.shape.index(K)
    inputs = ["w", "scale", *(["zero"] if zero is not None else [])]
    dequantize = helper.make_node("DequantizeLinear", inputs, ["real"], axis=axis, block_size=BLOCK)
    stored = {"w": weight, "zero": zero}
    constants = [
        helper.make_tensor(name, element, array.shape, array.ravel().tolist())
        for name, array in stored.items()
        if array is not None
    ]
    constants += [
        numpy_helper.from_array(array, name) for name, array in (("scale", scale), ("c", bias)) if array is not None
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", K), ("y", F)))
    graph = helper.make_graph([dequantize, *nodes], "blocks", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


MATMUL = [helper.make_node("MatMul", ["x", "real"], ["y"])]
TRANSPOSED = [
    helper.make_node("Transpose", ["real"], ["t"], perm=[1, 0]),
    helper.make_node("MatMul", ["x", "t"], ["y"]),
]
GEMM = [helper.make_node("Gemm", ["x", "real", "c"], ["y"], transB=1)]
BIAS = DRAW.standard_normal(F, np.float32)
CASES = {
    "int4, product": (MATMUL, TensorProto.INT4, False, None),
    "int4, transposed": (TRANSPOSED, TensorProto.INT4, True, None),
    "uint4 with zero points, Gemm": (GEMM, TensorProto.UINT4, True, BIAS),
    "int8, product": (MATMUL, TensorProto.INT8, False, None),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_stay_packed_and_agree_with_onnx_runtime(case):
    import onnxruntime

    nodes, element, by_row, bias = CASES[case]
    low, high = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16), TensorProto.INT8: (-128, 128)}[element]
    weight, scale = DRAW.integers(max(low, -127), high, (F, K)), DRAW.random((F, K // BLOCK), np.float32)
    zero = DRAW.integers(0, 16, scale.shape) if element == TensorProto.UINT4 else None
    weight, scale, zero = (array if by_row or array is None else array.T for array in (weight, scale, zero))
    proto = model(nodes, element, weight, scale, zero, bias)
    graph = optimize(import_model(proto))
    assert kinds(graph) == ["BlockDense"]
    (node,) = graph.nodes.values()
    assert node.operator == BlockDense(BLOCK)
    options = onnxruntime.SessionOptions()  # optimised, it rounds x to 8 bits
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, {"x": X})[0])
    for target in ("interpreter", "cpu"):
        np.testing.assert_allclose(prepare(graph, target).run({"x": X})["y"], expected, rtol=1e-4, atol=1e-3)


def test_weights_of_onnx_runtimes_quantiser_stay_packed():
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", K), ("y", F)))
    weight = numpy_helper.from_array(DRAW.standard_normal((K, F), np.float32), "real")
    graph = helper.make_graph(MATMUL, "float", [x], [y], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    quantizer = MatMulNBitsQuantizer(proto, block_size=BLOCK, is_symmetric=True, quant_format=QuantFormat.QDQ)
    quantizer.process()
    quantized = cast(Any, quantizer.model).model
    assert "DequantizeLinear" in {node.op_type for node in quantized.graph.node}
    assert kinds(optimize(import_model(quantized))) == ["BlockDense"]


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_other_products_and_users_stay(alpha):
    """A Gemm with a factor is computed from real weights, and so is a second user."""
    weight, scale = DRAW.integers(-8, 8, (F, K)), DRAW.random((F, K // BLOCK), np.float32)
    gemm = helper.make_node("Gemm", ["x", "real"], ["y"], transB=1, alpha=alpha)
    packed = kinds(optimize(import_model(model([gemm], TensorProto.INT4, weight, scale))))
    assert packed == (["BlockDense"] if alpha == 1 else ["FullyConnected"])
