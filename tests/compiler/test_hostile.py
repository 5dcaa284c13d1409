"""Malicious files: each is rejected quickly, with an error that states what is invalid and where."""

from __future__ import annotations

import os
import tracemalloc
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.errors import MlhoodError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
HUGE = 10**12
node = helper.make_node
info = helper.make_tensor_value_info


def model(nodes, shape=(1, 4, 8, 8), weights=None, *, opset=18, element=FLOAT, rank=None, outputs=("y",), **more):
    """Return a model without any check."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    rank = len(shape) if rank is None else rank
    output_infos = [info(name, element, [f"{name}{i}" for i in range(rank)]) for name in outputs]
    graph = helper.make_graph(nodes, "hostile", [info("x", element, shape)], output_infos, tensors)
    opsets = more.pop("opsets", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def single_node(op, weights=None, shape=(1, 4, 8, 8), opset=18, rank=None, outputs=("y",), element=FLOAT, **attributes):
    """Return a model of one node whose inputs are x and all weights."""
    proto = node(op, ["x", *(weights or {})], list(outputs), "it", **attributes)
    return model([proto], shape, weights, opset=opset, rank=rank, outputs=outputs, element=element)


def modified(base, change):
    proto = onnx.ModelProto.FromString(base.SerializeToString())
    change(proto)
    return proto


def ints(*values):
    return np.array(values, np.int64)


def kernel(*shape):
    return {"w": np.zeros(shape, np.float32)}


W = kernel(4, 4, 3, 3)
RELU = model([node("Relu", ["x"], ["y"], "it")])


def declared_weight(dims, data=b"\0" * 16):
    return modified(
        single_node("Add", {"w": np.zeros(4, np.float32)}), lambda m: _redeclare(m.graph.initializer[0], dims, data)
    )


def _redeclare(tensor, dims, data):
    del tensor.dims[:]
    tensor.dims.extend(dims)
    tensor.raw_data = data


def function_bomb(depth, calls=2):
    names = [f"f{i}" for i in range(depth)]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    bodies = [
        [node(inner, ["v"], ["v0"], domain="own"), node(inner, ["v0"], ["w"], domain="own")][2 - calls :]
        for inner in names[1:]
    ]
    for body in bodies:
        body[0].input[0] = "v"
    functions = [
        helper.make_function("own", name, ["v"], ["w"], body, opsets)
        for name, body in zip(names, [*bodies, [node("Relu", ["v"], ["w"])]], strict=True)
    ]
    return model([node("f0", ["x"], ["y"], domain="own")], opsets=opsets, functions=functions)


def recursive_function():
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    body = [node("f", ["v"], ["w"], domain="own")]
    return model(
        [node("f", ["x"], ["y"], domain="own")],
        opsets=opsets,
        functions=[helper.make_function("own", "f", ["v"], ["w"], body, opsets)],
    )


def nested_if(depth):
    graph = helper.make_graph([node("Relu", ["x"], ["y0"])], "g", [], [info("y0", FLOAT, None)])
    for i in range(1, depth):
        inner = node("If", ["c"], [f"y{i}"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([inner], "g", [], [info(f"y{i}", FLOAT, None)])
    return model([node("If", ["c"], ["y"], "it", then_branch=graph, else_branch=graph)], weights={"c": np.array(True)})


def doubling_chain(count, op, shape, **attributes):
    """Return a chain in which each node has its predecessor as both inputs."""
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    return model([node(op, [a, a], [b], **attributes) for a, b in pairwise(names)], shape, rank=len(shape))


def sequence_input():
    value = helper.make_tensor_sequence_value_info("x", FLOAT, [1])
    return modified(RELU, lambda m: m.graph.input[0].CopyFrom(value))


def set_attribute(proto, **fields):
    for name, value in fields.items():
        setattr(proto.graph.node[0].attribute[0], name, value)


# description -> (model, text that the error must contain)
REJECTED = {
    # names and structure
    "a cycle": (model([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["a"], ["y"])]), "b"),
    "its own input": (model([node("Add", ["x", "y"], ["y"], "it")]), "y"),
    "a dangling input": (model([node("Relu", ["nowhere"], ["y"], "it")]), "nowhere"),
    "a dangling output": (model([node("Relu", ["x"], ["z"], "it")]), "output 'y'"),
    "two nodes with the same output": (model([node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]), "y"),
    "a node that reads its own result": (model([node("Add", ["x", "y"], ["y"], "loop")]), "'loop'"),
    "a cycle of 1,000 nodes": (
        model([node("Add", ["x", f"r{(i + 999) % 1000}"], [f"r{i}"]) for i in range(1000)]),
        "and 990 more",
    ),
    "a node with an input as output": (model([node("Relu", ["x"], ["x"]), node("Relu", ["x"], ["y"])]), "x"),
    "two initializers of the same name": (
        modified(
            single_node("Add", {"w": np.float32(1)}), lambda m: m.graph.initializer.append(m.graph.initializer[0])
        ),
        "w ",
    ),
    "no such operator": (model([node("Reluu", ["x"], ["y"], "it")]), "Reluu"),
    "an unknown domain": (model([node("Relu", ["x"], ["y"], "it", domain="evil")]), "evil"),
    "opset 0": (model([node("Relu", ["x"], ["y"])], opset=0), "opset"),
    "too few inputs": (model([node("Conv", ["x"], ["y"], "it")]), ""),
    "an empty required input": (model([node("Conv", ["x", ""], ["y"], "it")]), "it"),
    "too many inputs": (model([node("Relu", ["x"] * 5, ["y"], "it")]), ""),
    "too many outputs": (model([node("Relu", ["x"], ["y", "z"], "it")]), ""),
    # unsupported models
    "strings": (model([node("Identity", ["x"], ["y"])], element=TensorProto.STRING), "STRING"),
    "a sequence": (sequence_input(), "sequence_type"),
    "a function that calls itself": (recursive_function(), "calls itself"),
    "functions that expand exponentially": (function_bomb(30), "too large once its functions are inlined"),
    "functions nested a thousand deep": (function_bomb(1000, calls=1), "deep"),
    # types
    "an input of 10^12 elements": (model([node("Relu", ["x"], ["y"])], (HUGE,)), "elements"),
    "a thousand axes": (model([node("Relu", ["x"], ["y"])], (1,) * 1000), "axes"),
    "an axis of 2^63 - 1": (model([node("Relu", ["x"], ["y"])], (2**63 - 1, 2)), "elements"),
    "a weight of 10^12 elements": (declared_weight([HUGE]), "name: w)"),
    "a weight of negative size": (declared_weight([-4]), "name: w)"),
    "a weight with too few data": (declared_weight([5]), "name: w)"),
    "a weight of 0 x 2^62 elements": (declared_weight([2**62, 2**62, 4]), "name: w)"),
    "no element type": (modified(RELU, lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0)), ""),
    "inconsistent element types": (single_node("Add", {"w": np.ones(1, np.int64)}), "it"),
    "a declared type that is wrong": (
        modified(RELU, lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", INT64)),
        "output 'y'",
    ),
    # attributes
    "an attribute of the wrong kind": (
        modified(single_node("Flatten", axis=1), lambda m: set_attribute(m, type=onnx.AttributeProto.FLOAT, f=1.0)),
        "axis",
    ),
    "an unknown attribute": (single_node("Relu", evil=1), "evil"),
    "a kernel without axes": (single_node("Conv", kernel(4, 4)), "spatial axis"),
    "a kernel of size 0": (single_node("Conv", kernel(4, 4, 0, 3)), "positive"),
    "an inconsistent kernel_shape": (single_node("Conv", W, kernel_shape=[5, 5]), "kernel_shape"),
    "stride 0": (single_node("Conv", W, strides=[0, 1]), "strides"),
    "stride 0 with auto_pad": (single_node("Conv", W, strides=[0, 1], auto_pad="SAME_UPPER"), "strides"),
    "dilation 0": (single_node("Conv", W, dilations=[0, 1]), "dilations"),
    "group 0": (single_node("Conv", W, group=0), "groups"),
    "pads of -1": (single_node("Conv", W, pads=[-1, 0, 0, 0]), "pads"),
    "pads of 2^62": (single_node("Conv", W, pads=[2**62] * 4), "elements"),
    "three pads": (single_node("Conv", W, pads=[1, 1, 1]), "pads"),
    "a kernel larger than the input": (single_node("Conv", kernel(4, 4, 9, 9)), "larger than"),
    "a window of 10^9": (single_node("MaxPool", kernel_shape=[10**9, 1]), "larger than"),
    "an invalid auto_pad": (single_node("Conv", W, auto_pad="EVIL"), "auto_pad"),
    "a permutation with repeats": (single_node("Transpose", perm=[0, 0, 1, 2]), "permutation"),
    "a permutation that is too long": (single_node("Transpose", perm=list(range(100_000))), "permutation"),
    "an axis out of range": (single_node("Softmax", axis=4), "axis is out of range"),
    "a concat axis out of range": (single_node("Concat", axis=-5), "axis is out of range"),
    "a repeated axis": (single_node("ReduceMean", {"a": ints(1, -3)}), "an axis is repeated"),
    "a squeezed axis of size 4": (single_node("Squeeze", {"a": ints(1)}, rank=3), "axes of length 1"),
    "a reshape to another size": (single_node("Reshape", {"s": ints(7, -1)}, rank=2), "does not match the new shape"),
    "a reshape to -2": (single_node("Reshape", {"s": ints(-2, 128)}, rank=2), "at most one length can be -1"),
    "a reshape of overflowing size": (
        single_node("Reshape", {"s": ints(2**32, 2**32)}, rank=2),
        "does not match the new shape",
    ),
    "a reshape by floats": (single_node("Reshape", {"s": np.ones(2, np.float32)}, rank=2), "integers"),
    "splits that do not add up": (single_node("Split", {"s": ints(1, 2)}, outputs=("y", "z"), axis=1), "add up"),
    "more splits than outputs": (single_node("Split", {"s": ints(2, 1, 1)}, outputs=("y", "z"), axis=1), "output"),
    "10^9 splits": (single_node("Split", outputs=("y", "z"), axis=1, num_outputs=10**9), "num_outputs"),
    "slices of step 0": (single_node("Slice", {"s": ints(0), "e": ints(2), "a": ints(0), "t": ints(0)}), "step"),
    "slices with inconsistent lengths": (single_node("Slice", {"s": ints(0, 0), "e": ints(2)}), "differ in length"),
    "an lrn of negative size": (single_node("LRN", size=-1), "positive"),
    "a gather by floats": (single_node("Gather", {"i": np.ones(1, np.float32)}), "indices"),
    "a cast to strings": (single_node("Cast", to=TensorProto.STRING, element=FLOAT), "STRING"),
    "a scale of NaN": (
        single_node("QuantizeLinear", {"s": np.float32("nan"), "z": np.uint8(0)}, element=FLOAT),
        "not positive",
    ),
    "a scale of 0": (single_node("QuantizeLinear", {"s": np.float32(0), "z": np.uint8(0)}), "not positive"),
    "a zero point that is a float": (single_node("QuantizeLinear", {"s": np.float32(1), "z": np.float32(0)}), "it"),
    "a zero point of another type": (
        single_node("DequantizeLinear", {"s": np.float32(1), "z": np.int8(0)}, element=TensorProto.UINT8),
        "zero point",
    ),
    "more zero points than scales": (
        single_node("QuantizeLinear", {"s": np.ones(4, np.float32), "z": np.uint8(0)}),
        "scale",
    ),
    "blocks of 10^12": (
        single_node("QuantizeLinear", {"s": np.ones((1, 1, 8, 8), np.float32)}, opset=21, block_size=HUGE),
        "the model declares",  # that y is float32; the blocks are no longer than the axis
    ),
    # small files with huge tensors
    "a tile of 10^12": (single_node("Tile", {"r": ints(1, 1, 10**6, 10**6)}), "elements"),
    "an expand to 10^12": (single_node("Expand", {"s": ints(HUGE, 1, 1, 1, 1)}, rank=5), "elements"),
    "a pad of 10^12": (single_node("Pad", {"p": ints(0, 0, 0, 0, 0, 0, 0, HUGE)}), "elements"),
    "a resize by 10^30": (
        single_node("Resize", {"r": np.zeros(0, np.float32), "s": np.full(4, 1e30, np.float32)}),
        "elements",
    ),
    "a resize by 0": (single_node("Resize", {"r": np.zeros(0, np.float32), "s": np.zeros(4, np.float32)}), "positive"),
    "a transposed convolution of stride 0": (single_node("ConvTranspose", W, strides=[0, 1]), "positive"),
    "a tile by -1": (single_node("Tile", {"r": ints(1, 1, 1, -1)}), ""),
    "a thousand repeats": (single_node("Tile", {"r": ints(*[2] * 1000)}), "axis"),
    "a thousand unsqueezed axes": (single_node("Unsqueeze", {"a": ints(*range(1000))}, rank=4), "axes"),
}


def constants_of_shape(count, size):
    nodes = [node("ConstantOfShape", ["s"], [f"c{i}"]) for i in range(count)]
    return model([*nodes, node("Relu", ["x"], ["y"])], weights={"s": ints(size)})


REJECTED |= {
    "one fill of 10^12": (constants_of_shape(1, HUGE), "larger constants than the importer allows"),
    "ten thousand fills of 10^7": (constants_of_shape(10_000, 10**7), "larger constants than the importer allows"),
    "a fill of negative size": (constants_of_shape(1, -1), "shape"),
}


@pytest.mark.parametrize("depth", [1, 12])
def test_of_nested_branches_one_is_imported(depth):
    """Both branches of each level would be 2 to the power of the depth."""
    graph = import_model(nested_if(depth).SerializeToString())
    assert [type(node.operator).__name__ for node in graph.nodes.values()] == ["Relu"]


@pytest.mark.parametrize("name", REJECTED)
def test_a_malicious_model_is_rejected(name):
    proto, message = REJECTED[name]
    data = proto.SerializeToString()
    tracemalloc.start()
    try:
        with pytest.raises(MlhoodError) as caught:
            verify(import_model(data))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)
    assert len(str(caught.value)) < 4000
    assert peak < 2**28 + 100 * len(data)


# -- small files that expand: their graphs stay small, and the interpreter checks memory before it allocates


def test_symbolic_shapes_that_double_at_every_node_stay_short():
    graph = import_model(doubling_chain(60, "Concat", ["n", 2], axis=0))
    verify(graph)
    assert max(len(str(value.type)) for value in graph.values()) < 400
    assert len(to_text(graph)) < 60 * 1000


def test_sizes_that_double_at_every_node_are_rejected():
    with pytest.raises(MlhoodError, match="too large"):
        import_model(doubling_chain(60, "Concat", [4, 2], axis=0))


@pytest.mark.parametrize(
    ("proto", "shape"),
    [
        (single_node("Expand", {"s": ints(2**35, 1)}, (1, 1)), (1, 1)),
        (model([node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["y"])], ["n", 1]), (10**6, 1)),
        (single_node("Tile", {"r": ints(2**18, 2**18)}, (1, "n")), (1, 1)),
        (single_node("Conv", kernel(1, 1, 900, 900), (1, 1, 1000, 1000), pads=[450] * 4), (1, 1, 1000, 1000)),
        (single_node("MaxPool", shape=(1, 1, 3000, 3000), kernel_shape=[500, 500]), (1, 1, 3000, 3000)),
        (single_node("Conv", kernel(1, 1, 1, 1), (1, 1, 1, 1), pads=[2**17] * 4, strides=[2**17] * 2), (1, 1, 1, 1)),
    ],
    ids=["Expand", "MatMul", "Tile", "Conv", "MaxPool", "Conv with pads"],
)
def test_the_interpreter_rejects_nodes_that_need_too_much_memory(proto, shape):
    interpreter = Interpreter(import_model(proto))
    x = np.zeros(shape, np.float32)
    tracemalloc.start()
    try:
        with pytest.raises(MlhoodError, match="more memory") as caught:
            interpreter.run({"x": x})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "node '" in str(caught.value)
    assert "limit=" in str(caught.value)
    assert peak < 2**26


def test_the_memory_limit_is_configurable():
    graph = import_model(model([node("Relu", ["x"], ["y"])], ["n"]))
    assert Interpreter(graph, limit=4000).run({"x": np.zeros(1000, np.float32)})["y"].shape == (1000,)
    with pytest.raises(MlhoodError, match="4,004 bytes"):
        Interpreter(graph, limit=4000).run({"x": np.zeros(1001, np.float32)})


def test_all_values_that_are_live_count_together():
    nodes = [node("Exp", ["x"], [f"e{i}"]) for i in range(8)] + [node("Sum", [f"e{i}" for i in range(8)], ["y"])]
    graph = import_model(model(nodes, ("n", 4)))
    x = np.zeros((1024, 4), np.float32)
    with pytest.raises(MlhoodError, match="values that are live here need more memory"):
        Interpreter(graph, total=7 * x.nbytes).run({"x": x})
    Interpreter(graph, total=10 * x.nbytes).run({"x": x})


def test_a_chain_of_values_needs_two_at_a_time():
    nodes = [node("Exp", ["x" if i == 0 else f"e{i - 1}"], [f"e{i}"]) for i in range(8)]
    nodes += [node("Neg", ["e0"], ["nobody reads it"]), node("Abs", ["e7"], ["y"])]
    x = np.zeros((1024, 4), np.float32)
    Interpreter(import_model(model(nodes, ("n", 4))), total=3 * x.nbytes).run({"x": x})


@pytest.mark.parametrize(("depth", "constant", "part"), [(18, 1, "nodes"), (12, 2**16, "bytes")])
def test_functions_that_unfold_to_too_much_are_rejected(depth, constant, part):
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    tensor = numpy_helper.from_array(np.zeros(constant, np.float32))
    body = [node("Constant", [], ["c"], value=tensor), node("Relu", ["a"], ["b"])]
    functions = [helper.make_function("f", "f0", ["a"], ["b"], body, opsets)]
    for i in range(1, depth):
        calls = [node(f"f{i - 1}", ["a"], ["t"], domain="f"), node(f"f{i - 1}", ["t"], ["b"], domain="f")]
        functions.append(helper.make_function("f", f"f{i}", ["a"], ["b"], calls, opsets))
    proto = model([node(f"f{depth - 1}", ["x"], ["y"], domain="f")], opsets=opsets, functions=functions)
    with pytest.raises(MlhoodError, match="too large once its functions are inlined"):
        import_model(proto)


def loops(depth, number=0):
    """Return a node: a Loop in a Loop and so on."""
    name, variable, result = str(number), f"v{number}", f"w{number}"
    inner = [loops(depth - 1, number + 1)] if depth > 1 else []
    last = inner[0].output[0] if inner else variable
    step = node("Add", [last, "x"], [result])
    inputs = [info(f"i{name}", INT64, []), info(f"c{name}", TensorProto.BOOL, []), info(variable, FLOAT, ["n"])]
    outputs = [info(f"g{name}", TensorProto.BOOL, []), info(result, FLOAT, ["m"])]
    body = helper.make_graph([node("Identity", [f"c{name}"], [f"g{name}"]), *inner, step], f"b{name}", inputs, outputs)
    start = f"v{number - 1}" if number else "x"
    return node("Loop", ["count", "", start], [f"y{name}" if number else "y"], f"it{name}", body=body)


@pytest.mark.parametrize(("depth", "count"), [(1, HUGE), (12, 5), (30, HUGE)])
def test_loops_that_are_too_long_to_be_unrolled_are_rejected(depth, count):
    with pytest.raises(MlhoodError, match="loops take more than"):
        import_model(model([loops(depth)], (3,), {"count": np.array(count)}))


def test_a_loop_that_never_ends_is_rejected():
    proto = loops(1)
    proto.input[0] = ""
    with pytest.raises(MlhoodError, match="loops take more than"):
        import_model(model([proto], (3,)))


def test_a_local_response_normalisation_over_too_many_channels():
    graph = import_model(single_node("LRN", size=HUGE + 1))
    y = Interpreter(graph).run({"x": np.ones((1, 4, 8, 8), np.float32)})["y"]
    np.testing.assert_allclose(y, 1, rtol=1e-4)


def test_unusual_names():
    names = ["\n  output %x", "\x1b[2J", 'quo"te\\', "ä Ω", "a" * 5000]
    chain = ["x", *names, "y"]
    graph = import_model(model([node("Relu", [a], [b], b) for a, b in pairwise(chain)], [names[0], 2], rank=2))
    verify(graph)
    assert len(to_text(graph).splitlines()) == 1 + 1 + 6 + 1


def test_a_name_that_is_not_utf_8():
    data = RELU.SerializeToString().replace(b"hostile", b"\xff\xfe\xfdtile")
    with pytest.raises(MlhoodError, match="not valid text"):
        import_model(data)


@pytest.mark.parametrize("name", ["5", "٣", "n" * 5000])
def test_invalid_names_of_axes(name):
    graph = import_model(model([node("Flatten", ["x"], ["y"])], [name, 2, 2], rank=2))
    assert graph.value("y").type.shape == ("x_0", 4)


# -- files


def model_with_external_data(location, tmp_path, **entries):
    def change(proto):
        tensor = proto.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=str(value))

    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    proto = modified(single_node("Add", {"w": np.ones(4, np.float32)}, (4,)), change)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"\0" * 16)
    return path


@pytest.mark.parametrize("location", ["missing", "../secret", "{secret}", "", "a\0b", ".", "x" * 5000, "./../secret"])
def test_external_data_outside_the_folder_are_rejected(tmp_path, secret, location):
    path = model_with_external_data(location.format(secret=secret), tmp_path)
    with pytest.raises(MlhoodError, match="which cannot be read") as caught:
        import_model(path)
    assert "tensor 'w'" in str(caught.value)


@pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege on Windows")
def test_external_data_behind_a_symbolic_link_are_rejected(tmp_path, secret):
    path = model_with_external_data("link", tmp_path)
    (path.parent / "link").symlink_to(secret)
    with pytest.raises(MlhoodError, match="which cannot be read"):
        import_model(path)
    (path.parent / "link").unlink()
    (path.parent / "link").symlink_to("link")
    with pytest.raises(MlhoodError, match="which cannot be read"):
        import_model(path)


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": 1},
        {"offset": -1},
        {"length": 17},
        {"length": 15},
        {"length": HUGE},
        {"offset": 2**63},
        {"length": "many"},
        {"offset": 17, "length": 0},
    ],
)
def test_external_data_of_the_wrong_length_are_rejected(tmp_path, entries):
    path = model_with_external_data("w.bin", tmp_path, **entries)
    (path.parent / "w.bin").write_bytes(b"\0" * 16)
    with pytest.raises(MlhoodError):
        import_model(path)


def test_external_data_of_attributes_are_not_read_from_the_working_directory(tmp_path, monkeypatch):
    tensor = TensorProto(dims=[4], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(b"\0" * 16)
    monkeypatch.chdir(tmp_path)
    proto = model([node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])], (4,))
    for source in (proto, proto.SerializeToString()):
        with pytest.raises(MlhoodError, match="which cannot be read"):
            import_model(source)


def test_files_that_are_too_large_or_not_regular(tmp_path):
    large = tmp_path / "large.onnx"
    with large.open("wb") as file:
        file.truncate(3 << 30)  # a sparse file
    with pytest.raises(MlhoodError, match="too large"):
        import_model(large)
    large.unlink()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.onnx")
        with pytest.raises(MlhoodError, match="not a regular file"):
            import_model(tmp_path / "pipe.onnx")


def test_folding_does_not_allocate_gigabytes():
    weights = {"c": np.zeros((1, 1, 1, 1), np.float32), "w": np.zeros((1, 1, 1, 1), np.float32)}
    nodes = [
        node("Conv", ["c", "w"], ["v"], pads=[2**17] * 4, strides=[2**17] * 2),
        node("Add", ["x", "v"], ["y"]),
    ]
    graph = import_model(model(nodes, (1, 1, 1, 1), weights))
    tracemalloc.start()
    try:
        optimize(graph)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def test_a_node_with_fifty_thousand_inputs():
    """The time must be linear in the number of inputs; otherwise this takes minutes."""
    names = [f"v{i}" for i in range(50_000)]
    star = [*(node("Relu", ["x"], [name]) for name in names), node("Concat", names, ["y"], axis=0)]
    graph = import_model(model(star, (2,)))
    verify(graph)
    assert graph.value("y").type.shape == (100_000,)
