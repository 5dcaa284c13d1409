"""The numbers that an ONNX file holds are counted wherever they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.stored_numbers import bill, counted


def model(nodes, initializers=(), *, sparse=(), functions=(), imports=(("", 18),)) -> bytes:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], list(initializers), sparse_initializer=list(sparse))
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=list(functions)).SerializeToString()


def count(data: bytes) -> int:
    return sum(bill(data).values())


def constant(**attributes):
    return helper.make_node("Constant", [], ["c"], **attributes)


ADD = helper.make_node("Add", ["x", "c"], ["y"])
THREE = np.ones(3, np.float32)


def test_the_bill_names_the_tensors():
    weights = [numpy_helper.from_array(THREE, "c"), numpy_helper.from_array(np.ones(2, np.int64), "shape")]
    assert {name: numbers for name, numbers in bill(model([ADD], weights)).items() if numbers} == {"c": 3, "shape": 4}


def test_lenet_holds_its_parameters():
    weights = reference.random_weights(np.random.default_rng(0))
    data = reference.lenet_onnx(weights)
    assert count(data) == sum(weight.size for weight in weights.values()) == 61_706


@pytest.mark.parametrize(
    ("dtype", "numbers"), [(np.float32, 3), (np.float16, 3), (np.int8, 3), (np.float64, 6), (np.int64, 6)]
)
def test_more_than_four_bytes_count_twice(dtype, numbers):
    assert count(model([ADD], [numpy_helper.from_array(np.ones(3, dtype), "c")])) == numbers


@pytest.mark.parametrize(
    ("attributes", "numbers"),
    [
        ({"value": numpy_helper.from_array(THREE)}, 3),
        ({"value_floats": [1.0, 2.0, 3.0]}, 3),
        ({"value_float": 1.0}, 1),
        ({"value_ints": [1, 2, 3]}, 6),
        ({"value_string": "twelve bytes"}, 3),
    ],
)
def test_constants_are_numbers(attributes, numbers):
    assert count(model([constant(**attributes), ADD])) == numbers


def test_a_sparse_tensor_holds_values_indices_and_a_shape():
    values, indices = numpy_helper.from_array(THREE, "c"), numpy_helper.from_array(np.arange(3), "i")
    assert count(model([ADD], sparse=[helper.make_sparse_tensor(values, indices, [9])])) == 3 + 6 + 2


def test_declared_shapes_are_not_believed():
    nodes = [helper.make_node("NonZero", ["x"], ["v"]), helper.make_node("Shape", ["v"], ["s"])]
    nodes.append(helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT))
    proto = onnx.load_model_from_string(model(nodes))
    proto.graph.value_info.append(helper.make_tensor_value_info("v", TensorProto.INT64, [2, 777]))
    numbers, data = counted(proto.SerializeToString())
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert numbers == 0
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [2, 3]


def test_what_describes_operators_is_free_up_to_a_limit():
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    assert count(model([pool] * 64)) == 0  # 2 bytes for the operator, 2 for its input, and 4 of integers
    assert count(model([pool] * 66)) == 4
    assert count(model([helper.make_node("Pad", ["x"], ["y"], pads=[1, 300] * 200)])) == (4 + 600 - 512) // 4
    assert count(model([helper.make_node("Einsum", ["x"], ["y"], equation="a" * 800)])) == (4 + 800 - 512) // 4
    assert count(model([helper.make_node("Concat", ["x", "c"] * 300, ["y"], axis=0)])) == 173  # 601 names


def test_real_attributes_are_numbers_unless_they_have_their_default():
    leaky = [helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.001 * i) for i in range(1, 101)]
    assert count(model(leaky)) == 99  # the default is 0.01
    assert count(model([helper.make_node("Upsample", ["x"], ["y"], scales=[2.0, 3.0])])) == 2


def test_the_shape_of_an_empty_tensor_holds_numbers():
    empty = helper.make_tensor("c", TensorProto.FLOAT, [0, 70, 80], [])
    assert count(model([ADD], [empty])) == 70 * 80


def test_texts_that_can_be_read_are_numbers():
    texts = helper.make_tensor("c", TensorProto.STRING, [3], [b"", b"-0.25", b"1"])
    assert count(model([ADD], [texts])) == 1 + 2 + 1


def test_names_and_documentation_hold_no_numbers():
    node = helper.make_node("Relu", ["x"], ["y"], name="n" * 1000, doc_string="d" * 1000)
    helper.set_model_props(proto := onnx.load_model_from_string(model([node])), {"key": "m" * 1000})
    assert count(proto.SerializeToString()) == 0


def test_a_subgraph_and_a_function_hold_numbers():
    branch = helper.make_graph([constant(value_floats=[1.0] * 5)], "b", [], [helper.make_empty_tensor_value_info("c")])
    other = helper.make_graph([], "e", [], [], [numpy_helper.from_array(THREE, "w")])
    assert count(model([helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=other)])) == 5 + 3
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [constant(value_floats=[1.0] * 4), ADD], [helper.make_opsetid("", 18)]
    )
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    assert count(model([call], functions=[function], imports=(("", 18), ("own", 1)))) == 4


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("RandomNormal", [], ["y"], shape=[3], seed=1.0),
        helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml"),
    ],
    ids=lambda node: node.op_type,
)
def test_operators_that_hide_numbers_are_refused(node):
    with pytest.raises(ValueError, match=f"the operator {node.op_type} is not allowed"):
        count(model([node]))


def test_a_negative_axis_is_refused():
    data = onnx.load_model_from_string(model([ADD], [numpy_helper.from_array(THREE, "c")]))
    data.training_info.add().initialization.initializer.add(data_type=TensorProto.FLOAT, dims=[-1000])
    with pytest.raises(ValueError, match="negative axis"):
        count(data.SerializeToString())


def test_numbers_in_another_file_are_refused():
    tensor = numpy_helper.from_array(THREE, "c")
    tensor.data_location = TensorProto.EXTERNAL
    with pytest.raises(ValueError, match="another file"):
        count(model([ADD], [tensor]))
