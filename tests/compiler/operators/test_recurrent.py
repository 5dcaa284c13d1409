"""Recurrent layers against ONNX Runtime, on every target and exported again; and as torch exports them."""

import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import assert_agreement, session_of

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, FEATURES, UNITS = 5, 3, 4, 6


def layer(op, directions=1, *, lengths=None, given="", outputs=(True, True, True), opset=14, layout=0, **attributes):
    """Return a model of one layer and its inputs; `given` names which of b, h, c, p it has."""
    rng, rows = np.random.default_rng(0), GATES[op] * UNITS
    batch_first = bool(layout)

    def array(*shape):
        return rng.standard_normal(shape, np.float32) * np.float32(0.3)

    def ordered(x):
        return np.ascontiguousarray(x.swapaxes(0, 1)) if batch_first else x

    inputs = {"x": ordered(array(STEPS, BATCH, FEATURES))}
    weights = {"w": array(directions, rows, FEATURES), "r": array(directions, rows, UNITS)}
    sizes = {"b": (directions, 2 * rows), "p": (directions, 3 * UNITS)}
    weights |= {name: array(*sizes[name]) for name in "bp" if name in given}
    if lengths is not None:
        inputs["l"] = np.array(lengths, np.int32)
    inputs |= {name: ordered(array(directions, BATCH, UNITS)) for name in "hc" if name in given}
    names = ["x", "w", "r", "b", "l", "h", *(["c", "p"] if op == "LSTM" else [])]
    results = ["y", "last_h", "last_c"][: 3 if op == "LSTM" else 2]
    kept = [name if wanted else "" for name, wanted in zip(results, outputs, strict=False)]
    named = [name if name in inputs or name in weights else "" for name in names]
    if directions == 2:
        attributes["direction"] = "bidirectional"
    node = helper.make_node(op, named, kept, hidden_size=UNITS, layout=layout or None, **attributes)
    axes = {"x": ["t", "n", FEATURES], "l": ["n"], "h": [directions, "n", UNITS], "c": [directions, "n", UNITS]}
    infos = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(given.dtype),
            [axes[name][i] for i in ((1, 0, 2) if batch_first and name != "l" else range(len(axes[name])))],
        )
        for name, given in inputs.items()
    ]
    ranks = {"y": 4, "last_h": 3, "last_c": 3}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * ranks[name]) for name in kept if name]
    tensors = [numpy_helper.from_array(weight, name) for name, weight in weights.items()]
    graph = helper.make_graph([node], "layer", infos, ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), inputs


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_directions_and_lengths_of_sequences(op, direction):
    directions, attributes = (2, {}) if direction == "bidirectional" else (1, {"direction": direction})
    for lengths in (None, [5, 3, 1], [0, 2, 4]):
        for given in ("", "bhcp"):
            assert_agreement(*layer(op, directions, lengths=lengths, given=given, **attributes), xla=bool(given))


@pytest.mark.parametrize("outputs", [(True, False, False), (False, True, False), (False, True, True)])
@pytest.mark.parametrize("op", GATES)
def test_outputs_that_are_left_out(op, outputs):
    assert_agreement(*layer(op, outputs=outputs), xla=False)


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("op", GATES)
def test_opsets(op, opset):
    assert_agreement(*layer(op, opset=opset, given="bhc"), xla=False)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("RNN", {"activations": ["Relu"] * 2}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"activations": ["Sigmoid", "Relu"] * 2}),
        ("LSTM", {"activations": ["Sigmoid", "Relu", "Tanh", "Tanh", "Sigmoid", "Relu"]}),
    ],
)
def test_attributes(op, attributes):
    assert_agreement(*layer(op, 2, given="bhcp", **attributes))


@pytest.mark.parametrize("op", GATES)
def test_layout_with_the_batch_first(op):
    """ONNX Runtime has no such layout: the same layer with the steps first, transposed."""
    model, inputs = layer(op, 2, given="bhc", layout=1)
    plain, steps_first = layer(op, 2, given="bhc")
    y, *last = outputs_of(plain, steps_first)
    assert_agreement(model, inputs, wanted=[y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in last)])


def outputs_of(model, inputs):
    return session_of(model).run(None, inputs)


class Net(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(FEATURES, UNITS, **options)

    def forward(self, x):
        return self.layers(x)[0]


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", [torch.nn.RNN, torch.nn.GRU, torch.nn.LSTM])
@pytest.mark.parametrize("dynamo", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_layers_of_torch(kind, options, dynamo, tmp_path):
    torch.manual_seed(0)
    net, x, path = Net(kind, **options).eval(), torch.randn(3, 5, FEATURES), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (x,), path, input_names=["x"], output_names=["y"], dynamo=dynamo)
    with torch.no_grad():
        wanted = [net(x).numpy()]
    assert_agreement(onnx.load(path), {"x": x.numpy()}, wanted=wanted)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"direction": "backward"}, "unknown direction"),
        ({"activations": ["Gelu", "Tanh", "Tanh"]}, "unknown activation"),
        ({"activations": ["Tanh"]}, "wrong number of activations"),
        ({"clip": 0.5}, "limits of the activations"),
    ],
)
def test_attributes_that_are_invalid(attributes, what):
    with pytest.raises(CompilerError, match=what):
        import_model(layer("LSTM", **attributes)[0])


def test_weights_of_another_size():
    model = layer("GRU", given="b")[0]
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.zeros((1, 7), np.float32), "b"))
    with pytest.raises(CompilerError, match="the bias does not match"):
        import_model(model)


def test_a_sequence_longer_than_the_input():
    model, inputs = layer("RNN", lengths=[5, 6, 1])
    with pytest.raises(CompilerError, match="longer than the input"):
        assert_agreement(model, inputs, wanted=[])
