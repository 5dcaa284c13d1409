"""Pictures: the gradient's graph is the mirrored image of the function's, can be read, and says what is on the tape."""

import numpy as np
import pytest
from torch import nn

from mlhood.errors import CompilerError
from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.autodiff import AutodiffError
from mlhood.jaxlab.autodiff.autodiff_figures import Twins, beside, gradient_graph, program_graph
from mlhood.jaxlab.operators.network import block, tree
from mlhood.jaxlab.tracing import tracer
from mlhood.models import LeNet
from mlhood.models.resnet import BasicBlock
from tests.compiler.geometry import check, check_no_overlap, check_wires, check_words

DRAW = np.random.default_rng(0)
PAGE = 1040  # pixels that a notebook shows at most


def recorded(model, images, run):
    state = {name: value.numpy(force=True) for name, value in model.state_dict().items()}
    tape = ad.Tape()
    run(tape.tree(tree(state)), tape.value(DRAW.standard_normal(images).astype(np.float32), "images"))
    return tape


@pytest.fixture(scope="module")
def lenet():
    return recorded(
        LeNet(), (2, 1, 32, 32), lambda params, x: ad.cross_entropy(ad.lenet(ad, params, x), np.array([3, 1]))
    )


@pytest.fixture(scope="module")
def residual():
    shortcut = nn.Sequential(nn.Conv2d(4, 6, 1, 2, bias=False), nn.BatchNorm2d(6))
    model = BasicBlock(4, 6, 2, shortcut).eval()
    return recorded(model, (1, 4, 8, 8), lambda params, x: ad.mean(block(ad, params, x, 2)))


def small():
    tape = ad.Tape()
    x = tape.value(np.array([1.0, 2.0]), "x")
    y = x * x
    ad.sum((1 - y) * y / 4)
    return tape


def twins(tape):
    return Twins(tape, ad.backward(tape))


def headings(scene):
    return [box.lines[0].text for box in scene.boxes]


def words(scene):
    return [line.text for box in scene.boxes for line in box.lines]


def labels(scene):
    return [line.text for box in scene.boxes for port in box.ports for line in port.label]


@pytest.mark.parametrize("name", ["lenet", "residual", "small"])
def test_it_can_be_read_at_a_notebooks_width(request, name):
    tape = small() if name == "small" else request.getfixturevalue(name)
    drawing = gradient_graph(tape)
    check(drawing.placement)
    check_words(drawing)
    assert drawing.size[0] <= PAGE
    both = twins(tape)
    whole, back = beside(both.forward, both.backward)
    assert len(back) == len(both.backward.wires)
    whole.routes = back  # from below to above, on the same ways
    check_no_overlap(whole)
    check_wires(whole, True)
    half = len(whole.boxes) // 2
    for left, right in zip(whole.boxes[:half], whole.boxes[half:], strict=True):
        assert left.top + left.height / 2 == pytest.approx(right.top + right.height / 2)
        assert left.left + left.width < right.left


def test_lenets_picture_has_a_rule_for_each_operation(lenet):
    both = twins(lenet)
    operations = [one.op for one in lenet.entries]
    assert headings(both.forward) == ["images", *operations, "result"]
    assert headings(both.backward) == ["∂ images", *(f"rule of {op}" for op in operations), "∂ result"]
    assert both.forward.wires == both.backward.wires
    lines = {"with conv1.weight [6, 1, 5, 5]", "kernel 2, stride 2, padding 0", "with value 23 [2]"}
    assert lines <= set(words(both.forward))
    gradients = [text for text in words(both.backward) if text.startswith("∂ ")]
    assert len(gradients) == 12  # ten weights, the images, and the one it begins with: labels have none
    assert f"‖g‖ = {np.linalg.norm(ad.backward(lenet)[lenet.entries[0].output]):.2g}" in labels(both.backward)


def test_where_a_value_is_read_twice_gradients_are_added_up(residual):
    both = twins(residual)
    assert headings(both.forward).count("copy") == headings(both.backward).count("sum") == 1
    number = headings(both.backward).index("sum")
    assert "2 gradients" in [line.text for line in both.backward.boxes[number].lines]
    assert [wire.source for wire in both.backward.wires].count(number) == 2
    squared = twins(small())
    assert headings(squared.backward).count("sum") == 2  # x is read twice by one operation


def test_of_a_number_it_is_said_which_operand_it_is():
    found = words(twins(small()).forward)
    assert {"sub 1 v1", "div v4 4"} <= set(found)


def test_what_has_no_gradient_is_pale_and_what_does_not_matter_is_left_out():
    tape = ad.Tape()
    x, labels_ = tape.value(np.ones((2, 3))), tape.value(np.array([0, 1]))
    ad.exp(x)
    ad.cross_entropy(x, labels_ + np.array([1, 1]))
    both = twins(tape)
    assert headings(both.forward) == ["value 1", "value 3", "add", "value 0", "cross_entropy", "result"]
    assert [box.mark for box in both.backward.boxes] == ["same", "same", "same", "", "", ""]
    assert labels(both.backward).count("no gradient") == 3
    check(gradient_graph(tape).placement)


def test_the_rules_that_are_given_are_drawn():
    tape = ad.Tape()
    x = tape.value(np.array([3.0, 4.0]), "x")
    ad.sum(x)
    rules = {"sum": lambda g, y, x, axis: (10 * x,)}
    assert "‖g‖ = 50" in gradient_graph(tape, rules).svg
    assert "‖g‖ = 1.4" in gradient_graph(tape).svg


def test_a_tape_without_operations_and_one_of_too_many():
    tape = ad.Tape()
    x = tape.value(np.array(2.0), "x")
    assert headings(twins(tape).forward) == ["x", "x"]
    for _ in range(151):
        x = -x
    with pytest.raises(AutodiffError, match="too much to draw"):
        gradient_graph(tape)


def test_pictures_are_saved(tmp_path):
    gradient_graph(small(), path=tmp_path / "small.svg")
    assert "rule of mul" in (tmp_path / "small.svg").read_text(encoding="utf-8")
    with pytest.raises(CompilerError, match="SVG or PNG"):
        gradient_graph(small(), path=tmp_path / "small.pdf")


# -- programs


def test_a_program_is_drawn_in_the_same_style(tmp_path):
    def function(x, w):
        y = tracer.relu(x @ w)
        return 2.0 - y * y, x.sum(), 3.5

    drawing = tracer.trace(function, (4, 3), (3, 5)).draw()
    check(drawing.placement)
    check_words(drawing)
    found = [placed.box.lines[0].text for placed in drawing.placement.boxes]
    assert found == ["a", "b", "matmul", "relu", "mul", "sub", "sum", "result 0", "result 1", "result 2"]
    text = drawing.save(tmp_path / "program.svg").read_text(encoding="utf-8")
    assert ">sub 2.0 e<" in text
    assert ">[4, 5]<" in text


def test_a_program_that_is_wrong_or_too_long_is_told():
    lost = tracer.fresh((2,))
    program = tracer.Program((), (tracer.Equation("neg", (lost,), tracer.fresh((2,))),), (lost,))
    assert f"?{lost.number}" in program_graph(program).svg
    first, second = tracer.fresh(()), tracer.fresh(())
    later = tracer.Equation("neg", (second,), first), tracer.Equation("neg", (first,), second)
    with pytest.raises(AutodiffError, match="before it is made"):
        tracer.Program((), later, (first,)).draw()
    long = tracer.trace(lambda x: [x := -x for _ in range(151)][-1], ())
    with pytest.raises(AutodiffError, match="too much to draw"):
        long.draw()
