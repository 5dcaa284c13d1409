"""The difference of two graphs, in words and side by side."""

import dataclasses

import numpy as np
import pytest

from mlhood.compiler.hir import Graph, Quantization, TensorType
from mlhood.compiler.hir.diff import diff
from mlhood.compiler.hir.draw import MAX_NODES, draw_diff
from mlhood.compiler.hir.parse import parse
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators import OPERATORS
from mlhood.errors import CompilerError
from tests.graph_drawing.geometry import check, check_words

BEFORE = """\
graph "before"
  placeholder %x : float32[batch, 3]
  constant %w : float32[2, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
  %fc : float32[batch, 2] = FullyConnected(%x, %w)
  %relu : float32[batch, 2] = Relu(%fc)
  %tail : float32[batch, 2] = Neg(%relu)
  output %tail
"""
AFTER = """\
graph "after"
  placeholder %x : float32[batch, 3]
  constant %w2 : float32[2, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]
  %relu : float32[batch, 2] = FullyConnected "fc" (%x, %w2) {activation=["Relu"]}
  %"a b" : float32[batch, 2] = Abs(%relu)
  %tail : float32[batch, 2] = Neg(%"a b")
  output %tail
  output "twice" = %relu
"""


def test_a_fusion_in_words():
    assert str(diff(parse(BEFORE), parse(AFTER))) == (
        "--- before (3 nodes)\n"
        "+++ after (3 nodes)\n"
        "~ FullyConnected fc\n"
        "    activation: none -> Relu\n"
        "    weight: other numbers\n"
        "    output: %fc -> %relu\n"
        "- Relu relu\n"
        '+ Abs "a b"\n'
        "~ Neg tail\n"
        '    x: %relu -> %"a b"\n'
        "+ output twice\n"
    )


def test_the_other_way_round_and_by_kind():
    back = diff(parse(AFTER), parse(BEFORE))
    assert [*back.added], [*back.removed] == (["relu"], ["a b"])
    assert back.changed["fc"].details[0] == "activation: Relu -> none"
    assert bool(back)


def test_a_graph_does_not_differ_from_its_copy():
    graph = parse(AFTER)
    same = diff(graph, graph.copy())
    assert not same
    assert str(same).endswith("no difference\n")


def test_a_constant_of_another_name_with_the_same_numbers_is_no_change():
    assert not diff(parse(BEFORE), parse(BEFORE.replace("%w", "%weights")))


def test_not_a_number_equals_itself():
    graph = Graph()
    graph.output(graph.constant("k", np.array([np.nan, 1.0])))
    other = Graph()
    other.output(other.constant("k", np.array([np.nan, 1.0])))
    assert not diff(graph, other)


def test_types_and_parameters():
    def quantized(scale: float, element: str = "int8") -> Graph:
        graph = Graph("q")
        x = graph.placeholder("x", TensorType("float32", (2,)))
        quantization = Quantization((scale,), (3,))
        q = graph.add(OPERATORS["Quantize"](element, quantization), x, name="q").outputs[0]
        graph.output(graph.add(OPERATORS["Dequantize"](), q, name="dq").outputs[0])
        return graph

    change = diff(quantized(0.5), quantized(2.0**-7)).changed
    assert change["q"].details == ("output: scale 2^-1, offset 3 -> scale 2^-7, offset 3",)
    change = diff(quantized(0.02), quantized(0.02, "uint8")).changed
    assert change["q"].details == (
        "element: int8 -> uint8",
        "output: int8 with scale 0.02, offset 3 -> uint8 with scale 0.02, offset 3",
    )
    assert [*change] == ["q"]  # the one behind reads the same name and gives the same


def test_inputs_of_the_graph_and_another_operator():
    def one(operator, axis="batch", name="x") -> Graph:
        graph = Graph("g")
        x = graph.placeholder(name, TensorType("float32", (axis, 2)))
        graph.output(graph.add(operator, x, name="node").outputs[0], "y")
        return graph

    changes = [str(change) for change in diff(one(OPERATORS["Relu"]()), one(OPERATORS["Clip"](0.0), 4, "z")).changes]
    assert changes == [
        "- input x",
        "+ input z",
        "~ Clip node\n    operator: Relu -> Clip\n    low: none -> 0\n    x: %x -> %z\n"
        "    output: float32[batch, 2] -> float32[4, 2]",
        "~ output y\n    type: float32[batch, 2] -> float32[4, 2]",
    ]


def test_a_constant_in_the_place_of_a_node_and_an_input_left_out():
    before, after = parse(BEFORE), parse(BEFORE)
    bias = after.constant("bias", np.array([0.5, 1.0], np.float32))
    fc = after.nodes["fc"]
    after.replace(fc, fc.operator, *fc.inputs, bias)
    assert diff(before, after).changed["fc"].details == ("bias: none -> constant [0.5, 1]",)
    assert diff(after, before).changed["fc"].details == ("bias: constant [0.5, 1] -> none",)


def test_nodes_in_another_order():
    text = """\
graph "g"
  placeholder %x : float32[2]
  %a : float32[2] = Relu(%x)
  %b : float32[2] = Neg(%a)
  output %b
"""
    swapped = """\
graph "g"
  placeholder %x : float32[2]
  %b2 : float32[2] = Neg "b" (%x)
  %a2 : float32[2] = Relu "a" (%b2)
  output %a2
"""
    before, after = parse(text), parse(swapped)
    assert [*diff(before, after).changed] == ["b", "a"]
    drawing = draw_diff(before, after)  # no heights hold both, so each is drawn by itself
    check(drawing.placement)


def test_long_graphs_differ_in_linear_time():
    def chain(length: int, skipped: int) -> Graph:
        graph = Graph()
        value = graph.placeholder("x", TensorType("float32", (2,)))
        for i in range(length):
            if i % 10 != skipped:
                value = graph.add(OPERATORS["Relu"](), value, name=f"n{i}").outputs[0]
        graph.output(value)
        return graph

    found = diff(chain(10_000, 3), chain(10_000, 7))
    assert len(found.added) == len(found.removed) == 1_000


def test_side_by_side():
    drawing = draw_diff(parse(BEFORE), parse(AFTER))
    check(drawing.placement)
    check_words(drawing)
    marks = [(placed.box.key[1], placed.box.mark) for placed in drawing.placement.boxes]
    assert marks == [
        *[("x", "same"), ("fc", "changed"), ("relu", "removed"), ("tail", "changed"), ("tail", "same")],
        *[
            ("x", "same"),
            ("fc", "changed"),
            ("a b", "added"),
            ("tail", "changed"),
            ("tail", "same"),
            ("twice", "added"),
        ],
    ]
    before, after = drawing.placement.boxes[1], drawing.placement.boxes[6]
    assert before.top + before.height / 2 == pytest.approx(after.top + after.height / 2)
    words = [line.text for line in after.box.lines]
    assert {"~ activation: none → Relu", "~ weight: other numbers"} <= {*words}


def test_removed_added_and_changed_are_told_apart_without_colour():
    svg = draw_diff(parse(BEFORE), parse(AFTER)).svg
    assert "stroke-dasharray" in svg
    assert {"−", "+", "~"} <= {line.strip() for line in svg.replace("<", "\n<").replace(">", ">\n").splitlines()}


def test_lenet_before_and_after_a_fusion(lenet_onnx, tmp_path):
    before = import_model(lenet_onnx)
    after = before.copy()
    relu = after.nodes["relu"]
    convolution = after.nodes["conv1"]
    after.replace(relu, dataclasses.replace(convolution.operator, activation=("Relu",)), *convolution.inputs)
    after.remove(convolution)
    after.rename_node(after.nodes["relu"], "conv1")
    drawing = draw_diff(before, after, tmp_path / "diff.svg")
    check(drawing.placement)
    check_words(drawing)
    assert (tmp_path / "diff.svg").stat().st_size < 200_000
    assert [*diff(before, after).removed] == ["relu"]


def test_empty_graphs_and_too_large_ones():
    check(draw_diff(Graph("a"), Graph("b")).placement)
    check(draw_diff(Graph("nothing"), parse(BEFORE)).placement)
    large = Graph("large")
    values = [large.placeholder("x", TensorType("float32", (2,)))]
    for _ in range(MAX_NODES + 1):
        values.append(large.add(OPERATORS["Relu"](), values[-1]).outputs[0])
    with pytest.raises(CompilerError, match="too large"):
        draw_diff(large, large)
