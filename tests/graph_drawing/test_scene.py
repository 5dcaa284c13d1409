"""Descriptions of scenes: what the alternative text of a drawing says about its nodes, ends and differences."""

import pytest

from mlhood.graph_drawing import (
    Box,
    Line,
    NodeStyle,
    Port,
    Scene,
    StyleSheet,
    Wire,
    WireStyle,
    draw_mirrored,
    draw_scene,
    draw_side_by_side,
)
from mlhood.graph_drawing.scene import describe_comparison, describe_mirrored, describe_scene

NODE, WIRE = NodeStyle("nodes", "#ffaaaa", "barred"), WireStyle("thin")
STYLES = StyleSheet((NODE,), (WIRE,))


def box(kind: str, name: str, title: str, inputs: int = 1) -> Box:
    return Box((kind, name), NODE, (Line(title), Line("details")), (Port((), WIRE),), arrow_labels=[""] * inputs)


def chain(*titles: str) -> Scene:
    """Return a scene of nodes in a row between `in` and `out`."""
    nodes = [box("node", f"{title}{i}", title) for i, title in enumerate(titles)]
    boxes = [box("input", "in", "in", inputs=0), *nodes, box("output", "out", "out")]
    return Scene("chain", boxes, [Wire(i, 0, i + 1, 0) for i in range(len(boxes) - 1)], STYLES)


def test_nodes_are_named_in_order():
    assert describe_scene(chain("Conv", "Relu")) == "Graph of 2 nodes from in to out: Conv, Relu."


def test_values_with_several_users_are_counted():
    scene = chain("Conv")
    scene.boxes[2].arrow_labels.append("")
    scene.wires.append(Wire(0, 0, 2, 1))
    assert describe_scene(scene) == "Graph of 1 node from in to out: Conv; 1 value with several users."


def test_a_graph_without_nodes_has_none():
    assert describe_scene(chain()) == "Graph of 0 nodes from in to out: none."
    assert describe_scene(Scene("empty", [], [], STYLES)) == "Graph of 0 nodes: none."


def test_commas_separate_nodes_only():
    assert describe_scene(chain("fusion, one loop", "dot")) == "Graph of 2 nodes from in to out: fusion one loop, dot."


def test_the_nodes_of_a_large_graph_are_counted():
    expected = "Graph of 81 nodes from in to out: 40 Conv, 40 Relu, 1 Gemm."
    assert describe_scene(chain(*["Conv", "Relu"] * 40, "Gemm")) == expected


def test_a_description_of_many_kinds_of_nodes_is_short():
    text = describe_scene(chain(*(f"kind {i}" for i in range(100))))
    assert text.startswith("Graph of 100 nodes from in to out: 1 kind 0, 1 kind 1, ")
    assert text.endswith("1 kind 7 and 92 more.")


def test_many_inputs_are_cut_to_the_first():
    scene = Scene("inputs", [box("input", f"x{i}", f"x{i}", 0) for i in range(10)], [], STYLES)
    scene.boxes.append(box("node", "sum", "Sum", inputs=10))
    scene.wires.extend(Wire(i, 0, 10, i) for i in range(10))
    assert describe_scene(scene) == "Graph of 1 node from x0, x1, x2, x3, x4, x5, x6, x7 and 2 more: Sum."


def test_a_comparison_lists_the_differences():
    before, after = chain("Conv", "Relu"), chain("Conv", "Gemm")
    before.boxes[2].mark, after.boxes[1].mark, after.boxes[2].mark = "removed", "changed", "added"
    assert describe_comparison((before, after), ("before: 2", "after: 2")) == (
        "Two graphs side by side, before: 2; after: 2. Removed: Relu Relu1. Added: Gemm Gemm1. Changed: Conv Conv0."
    )


def test_equal_graphs_have_no_differences():
    text = describe_comparison((chain("Conv"), chain("Conv")), ("a", "b"))
    assert text == "Two graphs side by side, a; b. No differences."


def test_a_mirrored_graph_names_each_kind_of_node_of_its_second_half_once():
    halves = chain("Conv", "Conv"), chain("rule of Conv", "rule of Conv")
    assert describe_mirrored(halves, ("forward", "backward")) == (
        "On the left, forward: Graph of 2 nodes from in to out: Conv, Conv. "
        "On the right, backward: the same graph with rule of Conv."
    )


@pytest.mark.parametrize(
    ("drawing", "expected"),
    [
        (draw_scene(chain("Conv")), describe_scene(chain("Conv"))),
        (
            draw_side_by_side((chain("Conv"), chain("Relu")), ("a", "b"), name="both"),
            describe_comparison((chain("Conv"), chain("Relu")), ("a", "b")),
        ),
        (
            draw_mirrored((chain("Conv"), chain("rule")), ("a", "b"), name="both"),
            describe_mirrored((chain("Conv"), chain("rule")), ("a", "b")),
        ),
    ],
    ids=["one scene", "side by side", "mirrored"],
)
def test_a_drawing_has_the_description_as_its_alternative_text(drawing, expected):
    assert drawing.alt_text == expected
