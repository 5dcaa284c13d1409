"""Drawings: what stands in them, that all of it can be read, and that they are the same every time."""

import hashlib
import io
import os
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from mlhood.compiler.hir import Graph, Quantization, TensorType
from mlhood.compiler.hir.describe import FAMILIES, FLOAT, INTEGER, QUANTIZED, describe
from mlhood.compiler.hir.draw import draw
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators import OPERATORS
from mlhood.errors import CompilerError, DrawingError, OutputError
from mlhood.graph_drawing import Box, fit_text
from mlhood.graph_drawing.layout import place_scene
from mlhood.graph_drawing.shapes import INSETS
from tests.graph_drawing.geometry import check, check_words

FLOATS = TensorType("float32", ("batch", 3, 32, 32))
ODD_NAMES = ["$x_1$", "<b>&amp;", "中文 ü λ", "a\nb\x00", "\u202e\ud800", "'\"", "%s {} \\alpha", " ", "n" * 300]


def texts(drawing) -> list[str]:
    """Return the words in a drawing, from its SVG."""
    root = ElementTree.fromstring(drawing.svg)
    return ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]


def chain(length: int, name: str = "chain") -> Graph:
    graph = Graph(name)
    value = graph.placeholder("x", FLOATS)
    for _ in range(length):
        value = graph.add(OPERATORS["Relu"](), value).outputs[0]
    graph.output(value)
    return graph


def quantized_graph() -> Graph:
    """Return a graph with every kind of value, two branches, two outputs of one node, and a value read twice by one."""
    graph = Graph("quantised")
    image, indices = graph.placeholder("image", FLOATS), graph.placeholder("$i$", TensorType("int64", (4,)))
    by_channel = Quantization((0.01,) * 16, (0,) * 16, 0)
    weight = graph.constant("w", np.zeros((16, 3, 3, 3), np.int8), by_channel)
    bias = graph.constant("b", np.zeros(16, np.int32))
    window = (1, 1), (1, 1, 1, 1), (1, 1)
    x = graph.add(OPERATORS["Quantize"]("int8", Quantization((2.0**-7,), (0,))), image, name="q").outputs[0]
    convolution = OPERATORS["QuantizedConv"](*window, quantization=Quantization((0.0312,), (-3,)))
    x = graph.add(convolution, x, weight, bias, name="conv1").outputs[0]
    one, two = (graph.add(OPERATORS["Dequantize"](), x).outputs[0] for _ in range(2))
    x = graph.add(OPERATORS["AddActivation"](("Clip", 0.0, 6.0)), one, two, name="block").outputs[0]
    x = graph.add(OPERATORS["Sub"](), x, x, name="twice").outputs[0]
    pool = graph.add(OPERATORS["MaxPool"]((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True), x, name="pool")
    graph.output(graph.add(OPERATORS["Gather"](1), pool.outputs[0], indices).outputs[0], "chosen")
    graph.output(pool.outputs[1], "where")
    graph.output(graph.constant("k", np.arange(3.0)), "constant")
    graph.output(image, "untouched")
    graph.placeholder("unused", FLOATS)
    return graph


@pytest.fixture(scope="module")
def resnet(resnet18_bn_onnx):
    return import_model(resnet18_bn_onnx)


# -- what stands in a drawing


def test_lenet_line_by_line(lenet_onnx):
    placement = place_scene(describe(import_model(lenet_onnx)))
    labels, boxes = placement.texts, placement.boxes
    assert [line.text for text in labels for line in text.lines][:2] == [
        "float32[batch, 1, 32, 32]",
        "float32[batch, 6, 28, 28]",
    ]
    said_in = [" | ".join(line.text for line in placed.box.lines) for placed in boxes]
    assert said_in == [
        "image | input",
        "Conv | conv1 | 5×5, stride 1 | weight [6, 1, 5, 5] | bias [6]",
        "Relu | relu",
        "MaxPool | maxpool | 2×2, stride 2",
        "Conv | conv2 | 5×5, stride 1 | weight [16, 6, 5, 5] | bias [16]",
        "Relu | relu_1",
        "MaxPool | maxpool_1 | 2×2, stride 2",
        "Reshape | reshape | shape [-1, 400]",
        "Gemm | fc1 | transpose_b | b [120, 400] | c [120]",
        "Relu | relu_2",
        "Gemm | fc2 | transpose_b | b [84, 120] | c [84]",
        "Relu | relu_3",
        "Gemm | fc3 | transpose_b | b [10, 84] | c [10]",
        "logits | output",
    ]
    assert [placed.box.lines[0].bold for placed in boxes] == [True] * 14
    tops = [placed.top for placed in boxes]
    assert tops == sorted(tops)
    middles = {round(placed.left + placed.width / 2, 1) for placed in boxes}
    assert len(middles) == 1  # a chain is a straight line
    check(placement)
    check_words(draw(import_model(lenet_onnx)))


def test_what_was_fused_and_what_is_not_the_usual_is_said():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (1, 8, 9, 9)))
    weight = graph.constant("w", np.zeros((8, 2, 3, 3), np.float32))
    operator = OPERATORS["Conv"]((2, 1), (1, 0, 1, 0), (1, 2), 4, ("Clip", 0.0, 6.0))
    graph.output(graph.add(operator, x, weight, name="c").outputs[0])
    words = texts(draw(graph))
    assert "Conv + Clip(0, 6)" in words
    assert {"3×3, stride 2×1, pad 1 0 1 0,", "dilation 1×2, group 4"} <= {*words}
    assert "weight [8, 2, 3, 3]" in words


def test_the_residual_branch_is_named_at_its_arrow():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (1, 3, 4, 4)))
    weight = graph.constant("w", np.zeros((3, 3, 1, 1), np.float32))
    operator = OPERATORS["Conv"]((1, 1), (0,) * 4, (1, 1), activation=("Relu",))
    graph.output(graph.add(operator, x, weight, None, graph.add(OPERATORS["Relu"](), x).outputs[0]).outputs[0])
    assert {"x", "z", "Conv + Relu"} <= {*texts(draw(graph))}


def test_quantised_values_are_told_apart_in_words_and_lines():
    drawing = draw(quantized_graph())
    words = texts(drawing)
    assert {"scale 2⁻⁷", "scale 0.0312, offset -3", "16 scales along axis 0", "Add + Clip(0, 6)"} <= {*words}
    assert {"a", "b", "x", "indices"} <= {*words}  # which of two arrows is which
    assert {route.style for route in drawing.placement.routes} == {FLOAT, QUANTIZED, INTEGER}
    assert {"quantised", "integers, bool", "quantisation"} <= {*words}  # the key
    check(drawing.placement)
    check_words(drawing)


def test_a_value_read_twice_by_one_node_arrives_twice():
    drawing = draw(quantized_graph())
    arrivals = [
        route.points[-1] for route in drawing.placement.routes if route.target and _named(route.target, "twice")
    ]
    assert len(set(arrivals)) == 2


def _named(box: Box, name: str) -> bool:
    return box.key == ("node", name)


def test_every_family_has_a_form_or_a_colour_of_its_own():
    looks = {(family.shape, family.color) for family in FAMILIES.values()}
    assert len(looks) == len(FAMILIES)
    assert {family.shape for family in FAMILIES.values()} == INSETS.keys()
    assert {operator.family for operator in OPERATORS.values()} <= FAMILIES.keys()
    shapes = [family.shape for family in FAMILIES.values() if family.title != "other"]
    assert len({*shapes}) == len(shapes)  # so that a grey copy can be read


# -- large and odd


def test_resnet_is_drawn_with_all_names_in_small_files(resnet):
    drawing = draw(resnet)
    check(drawing.placement)
    check_words(drawing)
    words = {*texts(drawing)}
    assert all(fit_text(name) in words for name in resnet.nodes)
    assert len(drawing.svg) < 400_000
    assert len(drawing.png) < 600_000


def test_the_trunk_of_resnet_is_straight(resnet):
    placement = place_scene(describe(resnet))
    check(placement)
    adds = [placed for placed in placement.boxes if placed.box.lines[0].text in ("Add", "MaxPool", "Gemm")]
    assert len({round(placed.left + placed.width / 2) for placed in adds}) == 1


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_printed_as_they_are_or_escaped(name):
    graph = Graph(name)
    x = graph.placeholder(name, FLOATS)
    graph.output(graph.add(OPERATORS["Relu"](), x, name=name, outputs=[f"{name}!"]).outputs[0], name)
    drawing = draw(graph)
    assert texts(drawing).count(fit_text(name)) == 3
    check(drawing.placement)
    check_words(drawing)
    assert Image.open(io.BytesIO(drawing.png)).size[0] > 100


def test_names_that_are_cut_show_in_full_under_the_mouse():
    graph = Graph()
    name = "layer." * 20 + "<end>"
    graph.output(graph.add(OPERATORS["Relu"](), graph.placeholder("x", FLOATS), name=name).outputs[0])
    root = ElementTree.fromstring(draw(graph).svg)
    assert name in {one.text for one in root.iter("{http://www.w3.org/2000/svg}title")}


def test_graphs_with_next_to_nothing():
    assert draw(Graph("empty")).placement.boxes == []
    graph = Graph()
    graph.placeholder("x", TensorType("bool", ()))
    assert {"x", "bool[]"} <= {*texts(draw(graph))}
    check(draw(graph).placement)


def test_a_graph_that_is_too_large_says_what_to_do():
    with pytest.raises(CompilerError, match="too large") as caught:
        draw(chain(501))
    assert "501" in str(caught.value)
    assert "to_text" in str(caught.value)


def test_a_tangle_is_refused_quickly():
    graph = Graph()
    values = [graph.placeholder("x", FLOATS)]
    for _ in range(200):
        values.append(graph.add(OPERATORS["Relu"](), values[-1]).outputs[0])
    total = values[-1]
    for value in values:
        total = graph.add(OPERATORS["Add"](), total, value).outputs[0]
    graph.output(total)
    with pytest.raises(DrawingError, match="pass by other nodes"):
        draw(graph)


def test_no_family_loses_its_colour_in_a_png(tmp_path):
    path = draw(quantized_graph(), tmp_path / "graph.png").save(tmp_path / "again.PNG")
    picture = Image.open(path).convert("RGB")
    drawing = draw(quantized_graph())
    assert picture.size == pytest.approx([2 * length for length in drawing.size], abs=2)
    colors = {color for _, color in picture.getcolors(100_000)}
    used = {placed.box.style.color for placed in drawing.placement.boxes}
    assert {tuple(int(color[i : i + 2], 16) for i in (1, 3, 5)) for color in used} <= colors


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(DrawingError, match="SVG or PNG") as caught:
        draw(chain(1), tmp_path / "graph.pdf")
    assert ".svg" in str(caught.value)
    with pytest.raises(OutputError):
        draw(chain(1), tmp_path / "nowhere" / "graph.svg")


# -- formats


PROGRAM = """
import hashlib
from tests.compiler.hir.test_draw import quantized_graph
from mlhood.compiler.hir.draw import draw
drawing = draw(quantized_graph())
print(hashlib.sha256(drawing.svg.encode() + drawing.png).hexdigest())
"""


def test_two_processes_draw_the_same():
    drawing = draw(quantized_graph())
    here = hashlib.sha256(drawing.svg.encode() + drawing.png).hexdigest()
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": paths}
    command = [sys.executable, "-c", PROGRAM]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert there == here


def test_the_settings_of_matplotlib_are_left_alone():
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, figures = dict(mpl.rcParams), plt.get_fignums()
    drawing = draw(chain(2))
    assert drawing.svg
    assert drawing.png
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == figures
