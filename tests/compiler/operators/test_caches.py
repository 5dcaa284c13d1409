"""Operators of decoders that keep a state, against ONNX's reference, on every target."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.tensor_scatter import TensorScatter
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, single


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree_with_the_reference(op_type, inputs, n_outputs, opset, *, exported=True, open_axes=True, **attributes):
    model = single(op_type, inputs, n_outputs, opset=opset, **attributes)
    given = {name: array for name, array in inputs.items() if array is not None}
    wanted = ReferenceEvaluator(model).run(None, given)
    agree(model, given, wanted=wanted, exported=exported, open_axes=open_axes)


@pytest.mark.parametrize(
    ("places", "attributes"),
    [
        (None, {}),
        ([0, 2], {}),
        ([3, 1], {"mode": "circular"}),
        ([-1, 9], {"mode": "circular", "axis": 1}),
        ([0, 1], {"axis": 1}),
    ],
)
def test_tensor_scatter(places, attributes):
    update = (2, 2, 4, 5) if "axis" in attributes else (2, 3, 2, 5)
    inputs = {"cache": numbers(2, 3, 4, 5), "update": numbers(*update, seed=1)}
    inputs["places"] = None if places is None else np.array(places, np.int64)
    agree_with_the_reference("TensorScatter", inputs, 1, 24, **attributes)


def test_a_place_past_the_end_is_refused():
    inputs = {"cache": numbers(1, 4, 5), "update": numbers(1, 2, 5), "places": np.array([3], np.int64)}
    with pytest.raises(CompilerError, match="out of range"):
        Interpreter(import_model(single("TensorScatter", inputs, opset=24))).run(inputs)


@pytest.mark.parametrize(
    ("update", "attributes", "reason"),
    [
        ((1, 5, 5), {}, "more steps"),
        ((1, 2, 4), {}, "does not match"),
        ((1, 2, 5), {"axis": 0}, "the batch"),
        ((1, 2, 5), {"mode": "spiral"}, "unknown mode"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(update, attributes, reason):
    with pytest.raises(CompilerError, match=reason):
        TensorScatter(**attributes).infer(TensorType("float32", (1, 4, 5)), TensorType("float32", update))


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize(("bias", "past"), [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("size", [1, 3])
def test_causal_convolution(activation, bias, past, size):
    inputs = {"x": numbers(2, 4, 5), "w": numbers(4, 1, size, seed=1)}
    inputs["bias"] = numbers(4, seed=2) if bias else None
    inputs["past"] = numbers(2, 4, size - 1, seed=3) if past else None
    agree_with_the_reference("CausalConvWithState", inputs, 2, 27, open_axes=False, activation=activation)


def test_an_open_number_of_steps_before_which_there_is_a_past():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "steps"
    del inputs["bias"]
    agree(model, inputs, wanted=ReferenceEvaluator(model).run(None, inputs), open_axes=False)


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
