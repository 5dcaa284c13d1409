"""Operators of decoders that keep a state, against ONNX's reference, on every target."""

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.linear_attention import LinearAttention
from mlhood.compiler.operators.tensor_scatter import TensorScatter
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, session_of, single


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree_with_the_reference(op_type, inputs, n_outputs, opset, *, exported=True, open_axes=True, **attributes):
    model = single(op_type, inputs, n_outputs, opset=opset, **attributes)
    given = {name: array for name, array in inputs.items() if array is not None}
    wanted = ReferenceEvaluator(model).run(None, given)
    agree(model, given, wanted=wanted, exported=exported, open_axes=open_axes)
    return model, given, wanted


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


def test_a_past_of_another_length_is_refused():
    inputs = {"x": numbers(1, 4, 2), "w": numbers(4, 1, 4), "bias": None, "past": numbers(1, 4, 3)}
    model = single("CausalConvWithState", inputs, 2, opset=27)
    model.graph.input[2].type.tensor_type.shape.dim[2].dim_value = 5
    with pytest.raises(CompilerError, match="k - 1 steps"):
        import_model(model)


def test_the_workspace_of_linear_attention_is_in_float32():
    types = [TensorType("float16", shape) for shape in ((1, 2, 60), (1, 2, 60), (1, 2, 60))]
    assert LinearAttention(1, 1, 1.0, "linear").workspace(*types) == 2 * 60 * 60


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


STEPS = {"q": (2, 3, 16), "k": (2, 3, 8), "v": (2, 3, 6), "past": (2, 2, 4, 3), "decay": (2, 3, 2), "beta": (2, 3, 2)}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("linear", {"past": None, "decay": None, "beta": None}),
        ("gated", {"beta": None}),
        ("gated", {"beta": None, "past": None, "decay": (2, 3, 8)}),
        ("delta", {"decay": None}),
        ("gated_delta", {}),
        ("gated_delta", {"beta": (2, 3, 1)}),
        ("gated_delta", {"q": (2, 0, 16), "k": (2, 0, 8), "v": (2, 0, 6), "decay": (2, 0, 2), "beta": (2, 0, 2)}),
    ],
)
def test_linear_attention(rule, changes):
    shapes = {**STEPS, **changes}
    inputs = {name: shape and numbers(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    attributes = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
    options = {"exported": False, "open_axes": False, **attributes}
    model, given, wanted = agree_with_the_reference("LinearAttention", inputs, 2, 27, **options)
    if shapes["q"][1] == 0:  # ONNX Runtime refuses a Scan of no steps
        return
    written = to_onnx(import_model(model))
    for got, reference in zip(session_of(written).run(None, given), wanted, strict=True):
        np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-5)


def test_an_open_number_of_steps_of_linear_attention():
    inputs = {name: numbers(*STEPS[name]) for name in ("q", "k", "v")}
    model = single("LinearAttention", inputs, 2, opset=27, q_num_heads=4, kv_num_heads=2, update_rule="linear")
    for value in (*model.graph.input, model.graph.output[0]):
        for axis, name in enumerate(("batch", "steps")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    model.graph.output[1].type.tensor_type.shape.dim[0].dim_param = "batch"
    agree(model, inputs, wanted=ReferenceEvaluator(model).run(None, inputs), open_axes=False, exported=False)


@pytest.mark.parametrize(
    ("operator", "changes", "reason"),
    [
        (LinearAttention(4, 2, 1.0, "gated"), {}, "must be given"),
        (LinearAttention(4, 2, 1.0, "cubic"), {}, "unknown rule"),
        (LinearAttention(4, 3, 1.0), {}, "shared evenly"),
        (LinearAttention(32, 2, 1.0), {}, "split into heads"),
        (LinearAttention(4, 2, 1.0), {"k": (2, 3, 6)}, "keys do not match"),
        (LinearAttention(4, 2, 1.0), {"v": (2, 4, 6)}, "values do not match"),
        (LinearAttention(4, 2, 1.0), {"past": (2, 2, 3, 4)}, "state does not match"),
        (LinearAttention(4, 2, 1.0), {"beta": (2, 3, 8)}, "shape of beta"),
        (LinearAttention(4, 2, 1.0), {"decay": (1, 3, 2)}, "steps of decay"),
    ],
)
def test_inputs_of_linear_attention_that_do_not_fit_are_refused(operator, changes, reason):
    types = [TensorType("float32", shape) for shape in {**STEPS, **changes}.values()]
    with pytest.raises(CompilerError, match=reason):
        operator.infer(*types)
