"""The ONNX importer: names, opsets, constants, shapes that are computed, and what it refuses."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.elementwise import Clip
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError, ExchangeError

node = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def test_values_keep_their_names(new_model):
    nodes = [node("Relu", ["x"], ["r"], "act"), node("Add", ["r", "w"], ["y"], "sum")]
    graph = import_model(new_model(nodes, {"x": (FLOAT, ["n", 2])}, {"w": np.ones(2, np.float32)}))
    assert list(graph.nodes) == ["act", "sum"]
    assert sorted(value.name for value in graph.values()) == ["r", "w", "x", "y"]
    assert graph.value("y").type.shape == ("n", 2)


def test_all_unsupported_operators_are_listed_at_once(new_model):
    nodes = [
        node("RandomNormalLike", ["x"], ["a"], "first"),
        node("Relu", ["a"], ["b"]),
        node("RandomNormalLike", ["x"], ["c"], "second"),
        node("RandomUniformLike", ["x"], ["y"], "third"),
    ]
    with pytest.raises(CompilerError, match="operators are not supported") as caught:
        import_model(new_model(nodes, {"x": (FLOAT, [2, 2])}))
    assert "RandomNormalLike ('first', 'second'); RandomUniformLike ('third')" in str(caught.value)


def test_an_error_names_the_node(new_model):
    weights = {"ratio": np.float32(0.5), "training": np.array(True)}
    nodes = [node("Dropout", ["x", "ratio", "training"], ["y"], "drop1")]
    with pytest.raises(CompilerError, match="is training") as caught:
        import_model(new_model(nodes, {"x": (FLOAT, ["n", 2])}, weights))
    assert "node 'drop1' (Dropout)" in str(caught.value)


def test_an_input_that_decides_a_shape_is_asked_for(new_model):
    model = new_model([node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, [6]), "s": (INT64, [2])}, rank=2)
    with pytest.raises(ConstantNeeded) as caught:
        import_model(model)
    assert caught.value.input_name == "s"
    graph = import_model(model, constants={"s": np.array([2, 3])})
    assert graph.value("y").type.shape == (2, 3)
    assert list(graph.placeholders) == ["x"]


def test_the_flatten_that_older_torch_writes(new_model):
    """Shape -> Gather -> Unsqueeze -> Concat -> Reshape, with a dynamic batch."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["first"]),
        node("Concat", ["first", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    graph = import_model(new_model(nodes, {"x": (FLOAT, ["n", 2, 3])}, weights, rank=2))
    verify(graph)
    assert graph.value("y").type.shape == ("n", 6)
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.testing.assert_array_equal(run(graph, x=x)["y"], x.reshape(4, 6))


@pytest.mark.parametrize(
    ("shape", "target", "wanted"),
    [
        (["n", 2, 3], [-1, 6], ("n", 6)),
        (["n", 2, 3], [0, -1], ("n", 6)),
        (["n", 4], [-1, 2], ("2*n", 2)),
        (["n", "m", 4], [0, 0, 2, 2], ("n", "m", 2, 2)),
        ([2, 0], [0, 5], None),
    ],
)
def test_reshape_with_open_axes(new_model, shape, target, wanted):
    model = new_model(
        [node("Reshape", ["x", "s"], ["y"])], {"x": (FLOAT, shape)}, {"s": np.array(target)}, rank=len(target)
    )
    if wanted is None:
        with pytest.raises((CompilerError, ExchangeError)):
            import_model(model)
    else:
        assert import_model(model).value("y").type.shape == wanted


def test_constants_that_became_attributes_are_gone(new_model):
    nodes = [
        node("Clip", ["x", "low", "high"], ["c"]),
        node("Reshape", ["c", "s"], ["r"]),
        node("Add", ["r", "s2"], ["y"]),
    ]
    weights = {"low": np.float32(0), "high": np.float32(6), "s": np.array([2, 3]), "s2": np.float32(1)}
    graph = import_model(new_model(nodes, {"x": (FLOAT, [6])}, weights))
    verify(graph)
    assert list(graph.constants) == ["s2"]
    assert graph.nodes["c"].operator == Clip(0.0, 6.0)


def test_a_constant_can_be_an_output(new_model):
    graph = import_model(new_model([node("Constant", [], ["y"], value_ints=[1, 2])], {}))
    np.testing.assert_array_equal(run(graph)["y"], [1, 2])


@pytest.mark.parametrize("axis", [None, -1, -2, "?", "-1", "12"])
def test_dynamic_dimensions_without_a_name_get_one(new_model, axis):
    model = new_model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [axis, 2, axis])}, rank=3)
    graph = import_model(model)
    assert graph.value("y").type.shape == ("x_0", 2, "x_2")
    assert import_model(model, dims={"x_0": 5}).value("y").type.shape == (5, 2, "x_2")
    x = np.linspace(-1, 1, 30, dtype=np.float32).reshape(3, 2, 5)
    np.testing.assert_array_equal(run(graph, x=x)["y"], np.maximum(x, 0))


def declare(model, name, element, shape):
    """Replace the declared type of an output, or add one for an intermediate value."""
    value = next((each for each in model.graph.output if each.name == name), None) or model.graph.value_info.add()
    value.CopyFrom(helper.make_tensor_value_info(name, element, shape))
    if not element:
        value.ClearField("type")
    return model


@pytest.mark.parametrize("shape", [None, [], [3], [7, 7], [-1, "n"], [1, 1, 2, 3]])
@pytest.mark.parametrize("name", ["r", "y"])
def test_declared_shapes_of_what_nodes_compute_are_ignored(new_model, name, shape):
    model = new_model([node("Relu", ["x"], ["r"]), node("Neg", ["r"], ["y"])], {"x": (FLOAT, [2, 3])})
    x = np.float32([[-1, 0, 1], [2, -2, 3]])
    for element in (FLOAT, 0):
        graph = import_model(declare(model, name, element, shape))
        assert graph.value("y").type.shape == (2, 3)
        np.testing.assert_array_equal(run(graph, x=x)["y"], -np.maximum(x, 0))


def test_an_output_of_another_element_type_is_refused(new_model):
    model = declare(new_model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}), "y", INT64, [2])
    with pytest.raises(CompilerError, match="element type is not the one") as caught:
        import_model(model)
    assert (caught.value.parts["expected"], caught.value.parts["got"]) == ("int64", "float32")


def test_an_output_may_be_listed_twice(new_model):
    model = new_model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}, outputs=("y", "y"))
    assert list(import_model(model).outputs) == ["y"]


def test_an_input_without_a_shape_needs_one(new_model):
    model = new_model([node("Relu", ["x"], ["y"])], {"x": (FLOAT, None)}, rank=2)
    with pytest.raises(CompilerError, match="does not declare the shape") as caught:
        import_model(model)
    assert "--shape x=" in str(caught.value)
    assert import_model(model, shapes={"x": ("n", 3)}, dims={"n": 2}).value("y").type.shape == (2, 3)
    with pytest.raises(CompilerError, match="shapes of an unknown input"):
        import_model(model, shapes={"z": (2,)})


UNSIGNED = TensorProto.UINT8


@pytest.mark.parametrize(
    ("element", "shape", "given", "wanted"),
    [
        (INT64, [2], [1, 2], [1, 2]),
        (INT64, [2], np.array([1, 2], np.int32), [1, 2]),
        (INT64, [1], 3, [3]),
        (INT64, ["n"], [], []),
        (INT64, [], 3, 3),
        (INT64, None, [1, 2], [1, 2]),
        (INT64, [1, 2], [1.0, 2.0], [[1, 2]]),
        (FLOAT, [1], 0.1, [np.float32(0.1)]),
        (TensorProto.BOOL, [], True, True),
        (INT64, [2], [1.5, 2], "element type of its input"),
        (INT64, [1], [float("nan")], "element type of its input"),
        (UNSIGNED, [1], [300], "element type of its input"),
        (UNSIGNED, [1], [-1], "element type of its input"),
        (FLOAT, [1], "half", "element type of its input"),
        (INT64, [2], [1, 2, 3], "wrong shape"),
        (INT64, [2], [[1, 2]], "wrong shape"),
        (INT64, None, [[1], [2, 3]], "cannot be converted to an array"),
    ],
)
def test_inputs_that_become_constants_have_the_declared_type(new_model, element, shape, given, wanted):
    model = new_model([node("Identity", ["c"], ["y"])], {"c": (element, shape)}, element=element, rank=0)
    if isinstance(wanted, str):
        with pytest.raises(CompilerError, match=wanted) as caught:
            import_model(model, constants={"c": given})
        assert "'c'" in caught.value.parts["where"]
        return
    got = run(import_model(model, constants={"c": given}))["y"]
    assert got.dtype == helper.tensor_dtype_to_np_dtype(element)
    np.testing.assert_array_equal(got, np.asarray(wanted), strict=False)
    assert got.shape == np.shape(wanted)


@pytest.mark.parametrize("constants", [{"axis": 1}, {"w": 1}, [1]])
def test_constants_of_no_input_are_refused(new_model, constants):
    model = new_model([node("Add", ["axes", "w"], ["y"])], {"axes": (INT64, [2])}, {"w": np.array(1)})
    with pytest.raises(CompilerError, match="constants") as caught:
        import_model(model, constants=constants)
    assert ("did you mean axes?" in str(caught.value)) == ("axis" in constants)


def test_initialisers_listed_as_inputs_are_constants():
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Add", ["x", "w"], ["y"])],
        "old",
        [info("x", FLOAT, [2]), info("w", FLOAT, [2])],
        [info("y", FLOAT, [2])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    assert list(import_model(model).placeholders) == ["x"]


def test_local_functions_are_inlined():
    info = helper.make_tensor_value_info
    twice = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 18)]
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")], "g", [info("x", FLOAT, [2])], [info("y", FLOAT, [2])]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[twice], ir_version=8)
    assert [one.operator.name for one in import_model(model).nodes.values()] == ["Add"]


# -- the same model in each opset


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 15, 18, 21, onnx.defs.onnx_opset_version()])
def test_operators_that_changed_with_the_opset(new_model, opset):
    def by(newer, name, values):
        """An argument as an attribute, or from opset `newer` on as an input."""
        return ([name], {}) if opset >= newer else ([], {name: values})

    weights = {"axes": np.array([2]), "pads": np.array([0, 1, 0, 0]), "starts": np.array([1]), "ends": np.array([3])}
    squeeze, pad, mean = by(13, "axes", [2]), by(11, "pads", [0, 1, 0, 0]), by(18, "axes", [2])
    cut = (["starts", "ends"], {}) if opset >= 10 else ([], {"starts": [1], "ends": [3]})
    along = {"axes": [0]} if opset < 10 else {}
    nodes = [
        node("ReduceMean", ["x", *mean[0]], ["m"], **mean[1]),
        node("Squeeze", ["m", *squeeze[0]], ["q"], **squeeze[1]),
        node("Pad", ["q", *pad[0]], ["p"], **pad[1]),
        node("Slice", ["p", *cut[0]], ["c"], **cut[1], **along),
        node("Softmax", ["c"], ["y"], axis=1),
    ]
    graph = import_model(new_model(nodes, {"x": (FLOAT, [4, 3, 5])}, weights, opset=opset))
    verify(graph)
    x = np.random.default_rng(0).standard_normal((4, 3, 5), np.float32)
    powers = np.exp(np.pad(x.mean(2), [(0, 0), (1, 0)])[1:3])
    np.testing.assert_allclose(run(graph, x=x)["y"], powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_chain_of_5_000_nodes(new_model):
    names = ["x", *(f"v{i}" for i in range(4_999)), "y"]
    nodes = [node("Relu", [a], [b]) for a, b in pairwise(names)]
    graph = import_model(new_model(nodes, {"x": (FLOAT, [2])}))
    assert len(graph.nodes) == 5_000
    np.testing.assert_array_equal(run(graph, x=np.array([-1, 1], np.float32))["y"], [0, 1])


def test_a_sparse_initialiser_is_refused(new_model):
    model = new_model([node("Add", ["x", "w"], ["y"])], {"x": (FLOAT, [2, 3]), "w": (FLOAT, [2, 3])})
    values = numpy_helper.from_array(np.float32([3, 4]), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 5])), [2, 3])
    model.graph.sparse_initializer.append(sparse)
    del model.graph.input[1]
    with pytest.raises(CompilerError, match="sparse initialisers are not supported"):
        import_model(model)
