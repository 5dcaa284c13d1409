"""Drawings of HLO: they are complete and readable."""

import io

import jax
import numpy as np
import pytest
from PIL import Image

from mlhood.errors import XlaError
from mlhood.jaxlab.operators.resnet import from_torch, logits
from mlhood.jaxlab.xla.drawing import draw, scene_of, steps
from mlhood.jaxlab.xla.views import view
from mlhood.models import resnet18
from tests.graph_drawing.geometry import check, check_words


def texts(scene) -> list[str]:
    return [line.text for box in scene.boxes for line in box.lines]


def titles(scene) -> list[str]:
    return [box.lines[0].text for box in scene.boxes]


@pytest.fixture(scope="module")
def network():
    return view(logits, from_torch(resnet18()), jax.ShapeDtypeStruct((1, 3, 224, 224), "float32"))


def test_a_small_drawing_is_readable(plain):
    drawing = draw(plain)
    check(drawing.placement)
    check_words(drawing)
    assert "result" in drawing.svg
    assert Image.open(io.BytesIO(drawing.png)).width >= 2 * drawing.size[0] - 1


def test_before_optimisation_each_instruction_is_a_box(plain):
    scene = scene_of(plain.module("hlo"))
    assert [title for title in titles(scene) if title in ("convolution", "add", "relu")] == [
        "convolution",
        "add",
        "relu",
    ]
    assert titles(scene)[-1] == "result"
    assert len(scene.wires) == len(scene.boxes) - 1


def test_the_box_of_a_fusion_lists_its_opcodes(plain):
    scene = scene_of(plain.module("optimized"))
    fusion = next(box for box in scene.boxes if any("add, maximum" in line.text for line in box.lines))
    assert fusion.lines[0].text.startswith("fusion")


def test_weights_are_lines_of_the_boxes_that_read_them():
    def dense(params, x):
        return x @ params["w"].T + params["b"]

    dense_view = view(dense, {"w": np.ones((5, 3), "float32"), "b": np.ones(5, "float32")}, np.ones((2, 3), "float32"))
    scene = scene_of(dense_view.module("hlo"), dense_view.data)
    assert titles(scene) == ["x.1", "dot", "add", "result"]
    assert {"with f32[3,5]", "  made by transpose", "with f32[2,5]"} <= set(texts(scene))


def test_each_of_several_results_has_a_box():
    scene = scene_of(view(lambda x: (x + 1, {"a": x * 2}), 1.0).module("hlo"))
    assert titles(scene)[-2:] == ["result 0", "result 1"]


def test_the_optimised_resnet_is_drawn(network):
    drawing = draw(network)
    check(drawing.placement)
    check_words(drawing)


def test_parameters_without_results_are_rejected(plain):
    with pytest.raises(XlaError, match="no result depends"):
        steps(plain.module("hlo"), [7])
