"""The layout of any scene: nothing overlaps, every box and wire is there."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import DrawingError
from mlhood.graph_drawing import Box, Line, NodeStyle, Port, Scene, StyleSheet, Wire, WireStyle
from mlhood.graph_drawing.layout import place_mirrored, place_scene, place_side_by_side
from mlhood.graph_drawing.shapes import INSETS
from tests.graph_drawing.geometry import check, check_no_overlap, check_wires

NODES = tuple(NodeStyle(shape, "#ffffff", shape) for shape in INSETS)
WIRES = WireStyle("thin"), WireStyle("thick", "double"), WireStyle("loose", "dotted")
STYLES = StyleSheet(NODES, WIRES)


@st.composite
def scenes(draw_from) -> Scene:
    count = draw_from(st.integers(1, 14))
    boxes, wires = [], []
    for i in range(count):
        ports = draw_from(st.integers(0 if i else 1, 3))
        label = (Line("m" * draw_from(st.integers(1, 20)), 10.0),)
        lines = tuple(Line("word " * draw_from(st.integers(1, 6))) for _ in range(draw_from(st.integers(1, 3))))
        port = Port(label, draw_from(st.sampled_from(WIRES)))
        box = Box(("node", str(i)), draw_from(st.sampled_from(NODES)), lines, (port,) * ports)
        sources = [j for j in range(i) if boxes[j].ports]
        for source in draw_from(st.lists(st.sampled_from(sources), max_size=5)) if sources else []:
            port = draw_from(st.integers(0, len(boxes[source].ports) - 1))
            wires.append(Wire(source, port, i, len(box.arrow_labels)))
            box.arrow_labels.append(draw_from(st.sampled_from(["", "z", "indices"])))
        boxes.append(box)
    return Scene("any", boxes, wires, STYLES)


@settings(max_examples=60)
@given(scenes())
def test_nothing_overlaps_in_any_scene(scene):
    placement = place_scene(scene)
    check(placement)
    assert len(placement.boxes) == len(scene.boxes)
    assert sum(route.target is not None for route in placement.routes) == len(scene.wires)


@settings(max_examples=20)
@given(scenes(), scenes())
def test_nothing_overlaps_side_by_side(first, second):
    placement, divider = place_side_by_side((first, second), ("first", "second"))
    check_no_overlap(placement)
    check_wires(placement)
    left, right = placement.boxes[: len(first.boxes)], placement.boxes[len(first.boxes) :]
    assert all(placed.left + placed.width < divider for placed in left)
    assert all(placed.left > divider for placed in right)


def chain(names: str) -> Scene:
    port = Port((), WIRES[0])
    boxes = [Box(("node", name), NODES[0], (Line(name),), (port,), [""] * (i > 0)) for i, name in enumerate(names)]
    return Scene(names, boxes, [Wire(i, 0, i + 1, 0) for i in range(len(names) - 1)], STYLES)


def tops(boxes) -> dict[str, float]:
    return {placed.box.key[1]: placed.top for placed in boxes}


def test_boxes_of_one_key_are_at_the_same_height_unless_their_orders_contradict():
    before, after = chain("abc"), chain("axc")
    placement, _ = place_side_by_side((before, after), ("before", "after"))
    left, right = tops(placement.boxes[:3]), tops(placement.boxes[3:])
    assert (left["a"], left["c"]) == (right["a"], right["c"])
    place_side_by_side((chain("ab"), chain("ba")), ("before", "after"))


def test_a_mirrored_scene_has_its_own_wires():
    placement, upward = place_mirrored((chain("ab"), chain("cd")), ("down", "up"))
    assert [route.target.key[1] for route in placement.routes if route.target] == ["b"]
    assert [(route.source.key[1], route.target.key[1]) for route in upward] == [("c", "d")]
    assert tops(placement.boxes)["a"] == tops(placement.boxes)["c"]


def test_a_cycle_is_an_error():
    scene = chain("ab")
    scene.wires.append(Wire(1, 0, 0, 0))
    scene.boxes[0].arrow_labels.append("")
    with pytest.raises(DrawingError, match="cycle"):
        place_scene(scene)
