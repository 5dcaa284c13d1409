"""What imports is exported again, and ONNX Runtime computes the same from both files."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import mlhood
from mlhood.compiler.onnx.exporter import to_onnx
from tests.compiler.operators.agreement import session_of

X = np.array([[1, -2], [3, 4]], np.float32)
FLOAT = TensorProto.FLOAT


def check(model, **inputs):
    exported = to_onnx(mlhood.compile(model, stop_after="optimized"))
    expected, actual = (session_of(file).run(None, inputs) for file in (model, exported))
    again = list(mlhood.compile(exported).run(**inputs).values())
    for wanted, exports, imports in zip(expected, actual, again, strict=True):
        np.testing.assert_allclose(exports, wanted, rtol=1e-5)
        np.testing.assert_allclose(imports, wanted, rtol=1e-5)


@pytest.mark.parametrize("op_type", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceSum"])
def test_a_reduction_over_no_axes(new_model, op_type):
    node = helper.make_node(op_type, ["x", "axes"], ["y"], noop_with_empty_axes=1)
    check(new_model([node], {"x": (FLOAT, [2, 2])}, {"axes": np.zeros(0, np.int64)}, opset=18), x=X)


def test_the_mask_of_a_dropout(new_model):
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    check(new_model([node], {"x": (FLOAT, X.shape)}, outputs=("y", "mask")), x=X)
