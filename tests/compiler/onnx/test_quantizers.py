"""Models that ONNX Runtime's quantiser writes, of each format, against ONNX Runtime."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import mlhood
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.onnx.importer import import_model
from tests.compiler.backends.c.programs import run_all
from tests.compiler.operators.agreement import session_of

Node = helper.make_node


def reals(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CHAIN = [
    Node("Conv", ["x", "w"], ["h"], "c", kernel_shape=[3, 3]),
    Node("Sigmoid", ["h"], ["s"], "s"),
    Node("Mul", ["h", "s"], ["m"], "m"),
    Node("Add", ["m", "h"], ["a"], "a"),
    Node("LeakyRelu", ["a"], ["l"], "l", alpha=0.1),
    Node("MaxPool", ["l"], ["p"], "p", kernel_shape=[2, 2], strides=[2, 2]),
    Node("AveragePool", ["l"], ["q"], "q", kernel_shape=[2, 2], strides=[2, 2]),
    Node("Concat", ["p", "q"], ["cc"], "cc", axis=1),
    Node("Reshape", ["cc", "shape"], ["r"], "r"),
    Node("Gemm", ["r", "v", "b"], ["g"], "g"),
    Node("Softmax", ["g"], ["y"], "y", axis=-1),
]
WEIGHTS = {"w": reals(4, 3, 3, 3), "shape": np.array([2, -1]), "v": reals(72, 5), "b": reals(5)}
MODELS = {
    "MatMul": (
        [Node("MatMul", ["x", "w"], ["h"], "m"), Node("Add", ["h", "b"], ["y"], "a")],
        {"x": reals(2, 3, 4)},
        {"w": reals(4, 5), "b": reals(5)},
    ),
    "two inputs": ([Node("MatMul", ["x", "z"], ["y"], "m")], {"x": reals(2, 3, 4), "z": reals(2, 4, 3)}, {}),
    "Gemm": (
        [Node("Gemm", ["x", "w", "b"], ["y"], "m", transB=1, alpha=0.5)],
        {"x": reals(2, 4)},
        {"w": reals(5, 4), "b": reals(5)},
    ),
    "Conv": (
        [Node("Conv", ["x", "w"], ["h"], "c", pads=[1, 0, 1, 2], group=3), Node("Relu", ["h"], ["y"], "r")],
        {"x": reals(2, 3, 8, 8)},
        {"w": reals(6, 1, 3, 3)},
    ),
    "Gather": (
        [Node("Gather", ["t", "i"], ["g"], "g"), Node("MatMul", ["g", "w"], ["y"], "m")],
        {"i": np.array([[1, 2, 0]])},
        {"t": reals(7, 4), "w": reals(4, 4)},
    ),
    "chain": (CHAIN, {"x": reals(2, 3, 8, 8)}, WEIGHTS),
}


def saved(name, folder):
    """Return the file of a model, and its inputs."""
    nodes, inputs, weights = MODELS[name]
    info = helper.make_tensor_value_info
    given = [info(key, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for key, array in inputs.items()]
    tensors = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]

    def model(shape):
        return helper.make_model(
            helper.make_graph(nodes, "g", given, [info("y", 1, shape)], tensors), opset_imports=opsets, ir_version=8
        )

    shape = session_of(model(None)).run(None, inputs)[0].shape
    onnx.save(model(shape), folder / "float.onnx")
    return folder / "float.onnx", inputs


def check(path, inputs, tolerance, targets=("interpreter", "cpu", "xla")):
    """Compare with ONNX Runtime as the file says, not as its optimiser rewrites it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    for target in targets:
        y = mlhood.compile(path, target=target).run(**inputs)["y"]
        np.testing.assert_allclose(y, wanted, atol=tolerance * np.abs(wanted).max(), rtol=0, err_msg=target)


@pytest.mark.parametrize("weight", [QuantType.QInt8, QuantType.QUInt8], ids=str)
@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("name", MODELS)
def test_quantize_dynamic(name, per_channel, weight, tmp_path):
    path, inputs = saved(name, tmp_path)
    quantize_dynamic(path, tmp_path / "q.onnx", per_channel=per_channel, weight_type=weight, reduce_range=per_channel)
    check(tmp_path / "q.onnx", inputs, 1e-5)


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc here")
def test_models_of_quantize_dynamic_in_c(tmp_path):
    programs, wanted = [], []
    for name in ("MatMul", "two inputs", "Gemm", "Conv", "Gather"):
        path, inputs = saved(name, tmp_path)
        quantize_dynamic(path, tmp_path / "q.onnx")
        wanted.append(session_of(onnx.load(tmp_path / "q.onnx")).run(None, inputs)[0])
        programs.append((optimize(lower(import_model(tmp_path / "q.onnx"))), inputs))
    for outputs, reference in zip(run_all(programs, tmp_path / "c", "gcc"), wanted, strict=True):
        np.testing.assert_allclose(outputs["y"], reference, rtol=1e-5, atol=1e-6)


class Reader(CalibrationDataReader):
    def __init__(self, inputs):
        self.samples = iter([inputs])

    def get_next(self):
        return next(self.samples, None)


ACTIVATIONS = {
    "uint8": (QuantType.QUInt8, QuantType.QInt8),
    "int8": (QuantType.QInt8, QuantType.QInt8),
    "uint16": (QuantType.QUInt16, QuantType.QInt16),
    "int4": (QuantType.QUInt8, QuantType.QInt4),
}


@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize(
    ("layout", "element"),
    [
        *((QuantFormat.QDQ, element) for element in ACTIVATIONS),
        *((QuantFormat.QOperator, e) for e in ("uint8", "int8")),
    ],
)
@pytest.mark.parametrize("name", ["MatMul", "Gemm", "Conv", "chain"])
def test_quantize_static(name, layout, element, per_channel, tmp_path):
    path, inputs = saved(name, tmp_path)
    activation, weight = ACTIVATIONS[element]
    settings = {"activation_type": activation, "weight_type": weight, "per_channel": per_channel}
    quantize_static(path, tmp_path / "q.onnx", Reader(inputs), quant_format=layout, **settings)
    check(tmp_path / "q.onnx", inputs, 1e-4 if element == "uint16" else 1e-2, ["interpreter", "cpu"])
