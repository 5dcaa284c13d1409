"""The choice of layouts: conversions only where they pay, and the same results."""

import itertools
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.cpu.layouts import block_activations, can_be_blocked
from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.cpu.machine import CpuSetup, WeightCache
from mlhood.compiler.backends.cpu.movement_selection import select_movement
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.compile import compile
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.lir.instructions import Buffer, Compute
from mlhood.compiler.operators.blocked import ToBlocked, ToPlain, to_blocked
from mlhood.kernels.codegen.target import PORTABLE, host
from mlhood.kernels.native import run
from tests.compiler.random_models import network

LANES = 8


def build(nodes, weights, shape=(2, 8, 6, 6), outputs=("y",)):
    """Return the optimised graph of ONNX nodes (operator, inputs, output, attributes)."""
    protos = [helper.make_node(op, inputs, [output], output, **more) for op, inputs, output, more in nodes]
    tensors = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(protos, "layouts", [x], infos, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    return compile(model.SerializeToString(), stop_after="hir")


def conversions(graph):
    return [node.operator.name for node in graph.topological() if isinstance(node.operator, ToBlocked | ToPlain)]


def check_same(graph, lanes=LANES):
    blocked = block_activations(graph, lanes)
    verify(blocked)
    shape = graph.placeholders["x"].type.shape
    x = np.random.default_rng(0).standard_normal([2 if isinstance(a, str) else a for a in shape]).astype(np.float32)
    expected, actual = (Interpreter(g).run({"x": x}) for g in (graph, blocked))
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-4, atol=1e-6)  # means are summed in another order
    return blocked


def filters(count, channels, size=3):
    return np.random.default_rng(1).standard_normal((count, channels, size, size))


PADS = {"pads": [1] * 4}


def test_a_convolution_along_one_axis_is_blocked():
    more = {"pads": [2, 1], "strides": [2], "dilations": [2], "group": 2}
    weights = {"w": np.random.default_rng(1).standard_normal((16, 8, 3)), "b": np.arange(16)}
    graph = build([("Conv", ["x", "w", "b"], "y", more)], weights, (2, 16, 9))
    x = np.random.default_rng(0).standard_normal((2, 16, 9), np.float32)
    expected = Interpreter(graph).run({"x": x})["y"]
    lowered = lower_for_cpu(graph, replace(PORTABLE, lanes=LANES))
    assert "BlockedConv" in [node.operator.name for node in lowered.nodes.values()]
    np.testing.assert_allclose(Interpreter(lowered).run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_a_chain_of_convolutions_is_converted_at_its_ends_only():
    nodes = [
        ("Conv", ["x", "w"], "a", PADS),
        ("Relu", ["a"], "b", {}),
        ("MaxPool", ["b"], "c", {"kernel_shape": [2, 2]}),
        ("Conv", ["c", "w"], "d", PADS),
        ("Add", ["c", "d"], "y", {}),
    ]
    assert conversions(check_same(build(nodes, {"w": filters(8, 8)}))) == ["ToBlocked", "ToPlain"]


def test_a_graph_without_convolution_and_pooling_stays_plain():
    graph = build([("Relu", ["x"], "a", {}), ("Mul", ["a", "x"], "y", {})], {})
    assert block_activations(graph, LANES) is graph


def test_an_image_of_few_channels_is_read_as_it_is():
    graph = build([("Conv", ["x", "w"], "y", PADS)], {"w": filters(8, 3)}, (1, 3, 6, 6))
    assert conversions(check_same(graph)) == ["ToPlain"]


def test_a_value_is_converted_once_for_all_who_read_it():
    nodes = [("Conv", ["x", w], y, PADS) for w, y in (("w", "a"), ("v", "b"))]
    nodes += [("Softmax", [name], f"{name}2", {"axis": 3}) for name in "ab"]
    nodes += [("Softmax", ["a"], "a3", {"axis": 2})]
    graph = build(nodes, {"w": filters(8, 8), "v": filters(8, 8)}, outputs=("a2", "b2", "a3"))
    assert sorted(conversions(check_same(graph))) == ["ToBlocked", "ToPlain", "ToPlain"]


@pytest.mark.parametrize(
    "shape", [(), (1,), (8, 1, 1), (1, 8, 1, 1), (6,), (6, 6), (8, 6, 6), (2, 8, 6, 6), (1, 1, 1, 1)]
)
def test_constants_are_blocked_when_compiling(shape):
    nodes = [("Conv", ["x", "w"], "a", PADS), ("Mul", ["a", "c"], "b", {}), ("Conv", ["b", "w"], "y", PADS)]
    constant = np.random.default_rng(2).standard_normal(shape)
    blocked = check_same(build(nodes, {"w": filters(8, 8), "c": constant}))
    assert conversions(blocked) == ["ToBlocked", "ToPlain"]


@pytest.mark.parametrize(("channels", "expected"), [(8, 2), (4, 5)])
def test_channels_are_concatenated_in_whole_blocks(channels, expected):
    nodes = [("Conv", ["x", w], y, PADS) for w, y in (("w", "a"), ("v", "b"))]
    nodes += [("Concat", ["a", "b"], "c", {"axis": 1}), ("Conv", ["c", "u"], "y", PADS)]
    weights = {"w": filters(channels, 8), "v": filters(channels, 8), "u": filters(8, 2 * channels)}
    assert len(conversions(check_same(build(nodes, weights)))) == expected


def test_groups_that_begin_in_the_middle_of_a_block_stay_plain():
    graph = build([("Conv", ["x", "w"], "y", {**PADS, "group": 2})], {"w": filters(8, 4)})
    assert block_activations(graph, LANES) is graph


def cost(graph, assignment):
    """Return the bytes of all conversions of an assignment of layouts: node -> whether it is blocked."""
    total = 0
    for value in graph.values():
        if value in graph.constants.values():
            continue
        produced = assignment.get(value.producer, False)
        users = [assignment.get(node, False) for node in value.users]
        users += [False] * graph.is_output(value)
        if any(user != produced for user in users):
            total += 4 * int(np.prod([1 if isinstance(a, str) else a for a in value.type.shape])) // 64 or 1
    return total


def test_the_cut_is_as_cheap_as_the_best_of_all_assignments():
    """Against brute force, on random graphs whose images have at least a block of channels."""
    compared = 0
    for seed in range(80):
        graph = compile(network(seed)[0].SerializeToString(), stop_after="optimized")
        always = [n for n in graph.topological() if n.operator.name in ("Conv", "MaxPool", "AveragePool")]
        free = [n for n in graph.topological() if can_be_blocked(n, LANES) and n not in always]
        if not always or not free or len(free) > 10 or graph.placeholders["x"].type.shape[1] < LANES:
            continue
        if any(n.inputs[1].type.shape[1] < LANES or n.operator.group > 1 for n in always if n.operator.name == "Conv"):
            continue
        blocked = {n: True for n in always if can_be_blocked(n, LANES)}
        options = itertools.product([False, True], repeat=len(free))
        best = min(cost(graph, blocked | dict(zip(free, option, strict=True))) for option in options)
        result = block_activations(graph, LANES)
        ours = {n: "lanes" in n.operator.attributes or result.nodes[n.name].outputs[0].type.rank == 5 for n in free}
        assert cost(graph, blocked | ours) == best, seed
        compared += 1
    assert compared > 8


@pytest.mark.parametrize("lanes", [4, 16])
def test_random_graphs_compute_the_same_with_other_blocks(lanes):
    for seed in range(25):
        graph = compile(network(seed)[0].SerializeToString(), stop_after="optimized")
        with np.errstate(all="ignore"):
            check_same(graph, lanes)


def test_the_blocked_type_counts_blocks():
    graph = block_activations(build([("Conv", ["x", "w"], "y", PADS)], {"w": filters(12, 8)}), LANES)
    assert graph.value("y").type == TensorType("float32", (2, 2, 6, 6, 8))


@pytest.mark.parametrize("element", ["float32", "int8"])
@pytest.mark.parametrize("shape", [(2, 37, 5, 7), (1, 16, 4, 8), (1, 3, 1, 1), (3, 48, 1, 1), (2, 5, 1, 2)])
def test_a_conversion_is_copies(shape, element):
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(element)
    setup = CpuSetup(host(), 1, WeightCache())
    plain, made = Buffer("x", TensorType(element, shape)), to_blocked(x, 16)
    blocked = Buffer("y", TensorType(element, made.shape))
    for operator, source, target, given, expected in (
        (ToBlocked(16), plain, blocked, x, made),
        (ToPlain(shape[1]), blocked, plain, made, x),
    ):
        selection = select_movement(Compute(operator, (target,), (source,)), setup)
        arrays = {source: given, target: np.full_like(expected, 77)}
        for call in selection.calls:
            run(call, **{name: arrays[selection.operands[name]] for name in call.operands})
        np.testing.assert_array_equal(arrays[target], expected)
