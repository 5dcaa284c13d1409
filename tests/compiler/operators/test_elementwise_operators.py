"""Trigonometry, predicates, shrinkage and bits against ONNX Runtime, on every target."""

import numpy as np
import pytest

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single, single

SPECIAL = [-np.inf, np.inf, np.nan, -0.0]
X = np.array([[*SPECIAL, -3, -1, -0.7, -0.5, 0.2, 0.5, 1, 1.2, 4]], np.float32)


@pytest.mark.parametrize("name", ["Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan"])
def test_functions(name):
    agree_single(name, {"x": X})
    agree_single(name, {"x": X[:, :0]})


@pytest.mark.parametrize("opset", [9, 20])
def test_is_nan(opset):
    agree_single("IsNaN", {"x": X}, opset=opset)


@pytest.mark.parametrize("attributes", [{}, {"detect_negative": 0}, {"detect_positive": 0}])
@pytest.mark.parametrize("opset", [10, 20])
def test_is_inf(attributes, opset):
    agree_single("IsInf", {"x": X}, opset=opset, attributes=attributes)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        *[("ThresholdedRelu", {}), ("ThresholdedRelu", {"alpha": 0.5}), ("ThresholdedRelu", {"alpha": -1.0})],
        *[("Shrink", {}), ("Shrink", {"lambd": 1.0, "bias": 0.25}), ("Celu", {}), ("Celu", {"alpha": 2.5})],
    ],
)
def test_activations(name, attributes):
    agree_single(name, {"x": X}, attributes=attributes, opset=12)


def test_shrink_of_integers():
    agree_single("Shrink", {"x": np.arange(-4, 5)}, attributes={"lambd": 1.5, "bias": 1.0})


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, dtype)


@pytest.mark.parametrize("name", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_bits(name, dtype):
    agree_single(name, {"a": integers(dtype, 3, 1, 4), "b": integers(dtype, 2, 1)})


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_bitwise_not(dtype):
    agree_single("BitwiseNot", {"x": integers(dtype, 3, 4)})


@pytest.mark.parametrize(
    ("name", "inputs"),
    [("Tan", {"x": np.arange(3)}), ("IsNaN", {"x": np.arange(3)}), ("ThresholdedRelu", {"x": np.arange(3)})],
)
def test_integers_are_refused(name, inputs):
    with pytest.raises(CompilerError, match="floating-point"):
        import_model(single(name, inputs))
