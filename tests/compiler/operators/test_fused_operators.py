"""Operators that only passes make: layers with an activation, with a residual branch, sums with an activation."""

import numpy as np
import pytest

from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.activation import (
    AddActivation,
    activation_of,
    apply_activation,
    check_activation,
    operator_of,
)
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Clip, Elu, LeakyRelu, Relu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.errors import CompilerError
from tests.compiler.passes.building import Build, HardSwish, Sigmoid, Tanh, built, conv

OPERATORS = [Relu(), Clip(0.0, 6.0), Clip(None, 1.0), LeakyRelu(0.2), Sigmoid(), Tanh(), HardSwish()]
SPELLED = [("Relu",), ("Clip", 0.0, 6.0), ("Clip", None, 1.0), ("LeakyRelu", 0.2), ("Sigmoid",), ("Tanh",)]


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
def test_an_operator_as_an_activation_and_back(operator):
    activation = activation_of(operator)
    assert operator_of(activation) == operator
    check_activation(activation)
    x = np.linspace(-8, 8, 33, dtype=np.float32)
    np.testing.assert_array_equal(apply_activation(x, activation), operator.evaluate(x))


@pytest.mark.parametrize(("operator", "activation"), list(zip(OPERATORS, SPELLED, strict=False)), ids=repr)
def test_the_spelling(operator, activation):
    assert activation_of(operator) == activation


def test_no_activation():
    assert activation_of(Elu()) is None
    assert activation_of(Add()) is None
    check_activation(())
    x = np.ones(2)
    assert apply_activation(x, ()) is x


@pytest.mark.parametrize("activation", [("Nonsense",), ("Relu", 1.0), ("Clip", 0.0, 6.0, 1.0), ("Elu",)])
def test_a_bad_activation_is_named(activation):
    b = Build()
    x = b.x("n", 2)
    for operator, inputs in [(AddActivation(activation), (x, x)), (FullyConnected(activation), (x, b.numbers(3, 2)))]:
        with pytest.raises(CompilerError, match="activation"):
            b(operator, *inputs)


def test_a_sum_without_an_activation_is_no_such_node():
    b = Build()
    with pytest.raises(CompilerError, match="the operator is Add"):
        b(AddActivation(()), (x := b.x(2)), x)


@pytest.mark.parametrize(
    ("z", "says"),
    [
        (lambda b: b.x("n", 2, 4, 3, name="z"), "another type"),
        (lambda b: b.x(2, 1, 1, name="z"), "another type"),
        (lambda b: b.x("n", 2, 4, 4, name="z", element="float64"), "element types differ"),
    ],
)
def test_a_residual_branch_has_the_outputs_type(z, says):
    b = Build()
    with pytest.raises(CompilerError, match=says):
        b.conv(b.x("n", 2, 4, 4), z=z(b))


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (lambda b: (b.x(3), b.numbers(2, 3)), "rank 2 or more and a matrix"),
        (lambda b: (b.x("n", 3), b.numbers(3)), "rank 2 or more and a matrix"),
        (lambda b: (b.x("n", 3), b.numbers(2, 4)), "does not match the weight"),
        (lambda b: (b.x("n", 3), b.numbers(2, 3), b.numbers(3)), "one element for each output"),
        (lambda b: (b.x("n", 3), b.numbers(2, 3), b.numbers(1, 2)), "one element for each output"),
    ],
)
def test_a_dense_layer_says_what_does_not_fit(inputs, says):
    b = Build()
    with pytest.raises(CompilerError, match=says):
        b(FullyConnected(), *inputs(b))


def test_defaults_are_left_out_of_the_text():
    text = to_text(built(lambda b: b(conv(), b.x("n", 1, 2, 2), b.numbers(1, 1, 1, 1))))
    assert "activation" not in text
    assert "group" not in text
