"""Drawings: all of the function is in them, they can be read, and long chains are folded."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from mlhood.errors import CompilerError, XlaError
from mlhood.jaxlab.operators.resnet import from_torch, logits
from mlhood.jaxlab.xla.drawing import describe, draw
from mlhood.jaxlab.xla.steps import steps
from mlhood.jaxlab.xla.views import view
from mlhood.models import resnet18
from tests.compiler.geometry import check, check_words


def words(scene) -> list[str]:
    return [line.text for box in scene.boxes for line in box.lines]


def headings(scene) -> list[str]:
    return [box.lines[0].text for box in scene.boxes]


@pytest.fixture(scope="module")
def network():
    return view(logits, from_torch(resnet18()), jax.ShapeDtypeStruct((1, 3, 224, 224), "float32"))


@pytest.mark.parametrize("stage", ["stablehlo", "hlo", "optimized"])
def test_a_small_drawing_can_be_read(plain, stage):
    drawing = draw(plain, stage, columns=1)
    check(drawing.placement)
    check_words(drawing)
    assert "result" in drawing.svg
    assert Image.open(io.BytesIO(drawing.png)).width >= 2 * drawing.size[0] - 1


def test_before_optimisation_each_instruction_is_a_box(plain):
    scene = describe(plain.module("stablehlo"))
    assert headings(scene) == [
        "arg0", "arg1", "arg2", "convolution", *["broadcast_in_dim"] * 3, "add", "relu", "result",
    ]  # fmt: skip
    assert len(scene.wires) == len(scene.boxes) - 1


def test_in_the_box_of_a_fusion_stand_its_opcodes(plain):
    scene = describe(plain.module("optimized"))
    box = next(one for one in scene.boxes if any("add, maximum" in line.text for line in one.lines))
    assert box.lines[0].text.startswith("fusion")


def test_weights_are_lines_where_they_are_read():
    def dense(params, x):
        return x @ params["w"].T + params["b"]

    module = view(dense, {"w": np.ones((5, 3), np.float32), "b": np.ones(5, np.float32)}, np.ones((2, 3), np.float32))
    scene = describe(module.module("stablehlo"), module.data)
    assert headings(scene) == ["arg2", "dot_general", "add", "result"]
    assert {"with f32[3,5]", "  made by transpose", "with f32[2,5]"} <= set(words(scene))


def test_chains_are_folded_up_to_products_and_branches():
    def f(x, w):
        y = jnp.sin(jnp.cos(x))  # read twice: nothing may be folded behind it
        return jnp.exp(jnp.negative(y)) @ w + y

    module = view(f, np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)).module("hlo")
    folded = [[line.opcode for line in (step.first, *step.chained)] for step in steps(module, fold=True)]
    assert folded == [["parameter"], ["cosine", "sine"], ["negate", "exponential"], ["parameter"], ["dot"], ["add"]]
    assert all(not step.chained for step in steps(module))


def test_a_function_that_gives_several_results_ends_in_each():
    scene = describe(view(lambda x: (x + 1, {"a": x * 2}), 1.0).module("stablehlo"))
    assert headings(scene)[-2:] == ["result 0", "result 1"]


@pytest.mark.parametrize("stage", ["stablehlo", "hlo"])
def test_a_whole_resnet_is_folded_by_itself(network, stage):
    drawing = draw(network, stage)
    found = [placed.box.lines[0].text for placed in drawing.placement.boxes]
    # 20 convolutions, 8 additions, two poolings, the classifier, an input and an output
    assert len(found) == 33
    assert (found.count("convolution"), found.count("add")) == (20, 8)
    check(drawing.placement, downwards=False)


def test_the_optimised_resnet_is_drawn(network):
    drawing = draw(network)
    check(drawing.placement, downwards=False)
    check_words(drawing)


def test_too_much_is_not_drawn_and_only_pictures_are_written(plain, tmp_path):
    with pytest.raises(XlaError, match="too much to draw"):
        draw(plain, "hlo", limit=3)
    with pytest.raises(CompilerError, match="SVG or PNG"):
        draw(plain, "hlo", tmp_path / "conv.pdf")
    draw(plain, "hlo", tmp_path / "conv.svg")
    assert "convolution" in (tmp_path / "conv.svg").read_text(encoding="utf-8")


def test_nothing_to_follow_is_an_error(plain):
    with pytest.raises(XlaError, match="no result depends"):
        steps(plain.module("hlo"), [7])
