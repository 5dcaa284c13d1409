"""Operators of decoders that keep a state, against ONNX's reference, on every target."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, single


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_an_open_number_of_steps_before_which_there_is_a_past():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "steps"
    del inputs["bias"]
    agree(model, inputs, wanted=ReferenceEvaluator(model).run(None, inputs), open_axes=False)


def test_a_past_of_another_length_is_refused():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[2].type.tensor_type.shape.dim[2].dim_value = 5
    with pytest.raises(CompilerError, match="k - 1 steps"):
        import_model(model)


@pytest.mark.parametrize(
    ("x", "w", "activation", "reason"),
    [
        ((1, 4, 5), (4, 1, 2), "relu", "unknown activation"),
        ((1, 4, 5, 1), (4, 1, 2, 1), "none", "3 axes"),
        ((1, 4, 5), (4, 1, 0), "none", "shape of the kernels"),
    ],
)
def test_a_causal_convolution_that_is_invalid_is_refused(x, w, activation, reason):
    model = single("Identity", {"x": numbers(*x)})
    model.graph.input.append(single("Identity", {"w": numbers(*w)}).graph.input[0])
    model.opset_import[0].version = 27
    node = helper.make_node("CausalConvWithState", ["x", "w"], ["y0", "y1"], activation=activation)
    model.graph.node[0].CopyFrom(node)
    with pytest.raises(CompilerError, match=reason):
        import_model(model)
