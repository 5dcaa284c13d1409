"""Drawings of tapes: the graph of the gradients mirrors that of the function, and both are readable and complete."""

import numpy as np
import pytest
from torch import nn

from mlhood.graph_drawing.layout import place_mirrored
from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError
from mlhood.jaxlab.autodiff.autodiff_figures import GradientScenes, gradient_graph
from mlhood.jaxlab.operators.network import block, tree
from mlhood.models import LeNet
from mlhood.models.resnet import BasicBlock
from tests.graph_drawing.geometry import check, check_no_overlap, check_wires, check_words

RNG = np.random.default_rng(0)
PAGE_WIDTH = 1040  # pixels that a notebook shows at most


def record(model, shape, function):
    state = {name: value.numpy(force=True) for name, value in model.state_dict().items()}
    tape = ad.Tape()
    function(tape.tree(tree(state)), tape.value(RNG.standard_normal(shape).astype(np.float32), "images"))
    return tape


@pytest.fixture(scope="module")
def lenet():
    def loss(params, x):
        return ad.cross_entropy(ad.lenet(ad, params, x), np.array([3, 1]))

    return record(LeNet(), (2, 1, 32, 32), loss)


@pytest.fixture(scope="module")
def residual():
    shortcut = nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6))
    model = BasicBlock(4, 6, 2, shortcut).eval()
    return record(model, (1, 4, 8, 8), lambda params, x: ad.mean(block(ad, params, x, 2)))


def small():
    tape = ad.Tape()
    x = tape.value(np.array([1.0, 2.0]), "x")
    y = x * x
    ad.sum((1 - y) * y / 4)
    return tape


def scenes_of(tape):
    return GradientScenes(tape, ad.backward(tape))


def titles(scene):
    return [box.lines[0].text for box in scene.boxes]


def texts(scene):
    return [line.text for box in scene.boxes for line in box.lines]


def port_labels(scene):
    return [line.text for box in scene.boxes for port in box.ports for line in port.label]


@pytest.mark.parametrize("name", ["lenet", "residual", "small"])
def test_it_is_readable_at_a_notebooks_width(request, name):
    tape = small() if name == "small" else request.getfixturevalue(name)
    drawing = gradient_graph(tape)
    check(drawing.placement)
    check_words(drawing)
    assert drawing.size[0] <= PAGE_WIDTH
    scenes = scenes_of(tape)
    placement, back = place_mirrored((scenes.forward, scenes.backward), ("forward", "backward"))
    assert len(back) == len(scenes.backward.wires)
    placement.routes = back  # drawn upwards, along the same routes
    check_no_overlap(placement)
    check_wires(placement)
    half = len(placement.boxes) // 2
    for left, right in zip(placement.boxes[:half], placement.boxes[half:], strict=True):
        assert left.top + left.height / 2 == pytest.approx(right.top + right.height / 2)
        assert left.left + left.width < right.left


def test_lenets_drawing_has_a_rule_for_each_operation(lenet):
    scenes = scenes_of(lenet)
    ops = [entry.op for entry in lenet.entries]
    assert titles(scenes.forward) == ["images", *ops, "result"]
    assert titles(scenes.backward) == ["∂ images", *(f"rule of {op}" for op in ops), "∂ result"]
    assert scenes.forward.wires == scenes.backward.wires
    lines = {"with conv1.weight [6, 1, 5, 5]", "kernel 2, stride 2, padding 0", "with value 23 [2]"}
    assert lines <= set(texts(scenes.forward))
    gradients = [text for text in texts(scenes.backward) if text.startswith("∂ ")]
    assert len(gradients) == 12  # of ten weights, of the images, and the initial one: labels have none
    norm = np.linalg.norm(ad.backward(lenet)[lenet.entries[0].output])
    assert f"‖g‖ = {norm:.2g}" in port_labels(scenes.backward)


def test_gradients_of_a_value_that_is_read_twice_are_added_up(residual):
    scenes = scenes_of(residual)
    assert titles(scenes.forward).count("copy") == titles(scenes.backward).count("sum") == 1
    index = titles(scenes.backward).index("sum")
    assert "2 gradients" in [line.text for line in scenes.backward.boxes[index].lines]
    assert [wire.source for wire in scenes.backward.wires].count(index) == 2
    assert titles(scenes_of(small()).backward).count("sum") == 2  # x is read twice by one operation


def test_operands_are_shown_if_one_is_a_literal():
    assert {"sub 1 v1", "div v4 4"} <= set(texts(scenes_of(small()).forward))


def test_boxes_without_gradient_are_pale_and_dead_operations_are_left_out():
    tape = ad.Tape()
    x, labels = tape.value(np.ones((2, 3))), tape.value(np.array([0, 1]))
    ad.exp(x)
    ad.cross_entropy(x, labels + np.array([1, 1]))
    scenes = scenes_of(tape)
    assert titles(scenes.forward) == ["value 1", "value 3", "add", "value 0", "cross_entropy", "result"]
    assert [box.mark for box in scenes.backward.boxes] == ["same", "same", "same", "", "", ""]
    assert port_labels(scenes.backward).count("no gradient") == 3
    check(gradient_graph(tape).placement)


def test_custom_rules_are_drawn():
    tape = ad.Tape()
    x = tape.value(np.array([3.0, 4.0]), "x")
    ad.sum(x)
    rules = {"sum": lambda g, y, x, axis: (10 * x,)}
    assert "‖g‖ = 50" in gradient_graph(tape, rules).svg
    assert "‖g‖ = 1.4" in gradient_graph(tape).svg


def test_a_tape_without_operations_and_one_with_too_many():
    tape = ad.Tape()
    x = tape.value(np.array(2.0), "x")
    assert titles(scenes_of(tape).forward) == ["x", "x"]
    for _ in range(151):
        x = -x
    with pytest.raises(AutodiffError, match="too long to be drawn"):
        gradient_graph(tape)
