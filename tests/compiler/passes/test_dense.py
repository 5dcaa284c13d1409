"""Canonicalisation of products with constant matrices."""

import numpy as np
import pytest

from mlhood.compiler.operators.arithmetic import Add, Sub
from mlhood.compiler.operators.matrix import Gemm, MatMul
from mlhood.compiler.operators.movement import Transpose
from tests.compiler.passes.building import Tanh, apply, built, example, kinds, stays

PASS = "products_to_dense"


def product(b, *shape):
    return b(MatMul(), b.x(*(shape or ("n", 3))), b.constant(b.numbers(3, 2), "w"))


REWRITTEN = {
    "product": product,
    "with a bias": lambda b: b(Add(), product(b), b.numbers(2)),
    "bias as the first operand": lambda b: b(Add(), b.numbers(1, 2), product(b)),
    "a scalar bias": lambda b: b(Add(), product(b), np.float32(3)),
    "two biases": lambda b: b(Add(), b(Add(), product(b), b.numbers(2)), b.numbers(2)),
    "more axes": lambda b: b(Add(), product(b, "n", 4, 3), b.numbers(1, 1, 2)),
    "gemm": lambda b: b(Gemm(), b.x("n", 3), b.numbers(3, 2), b.numbers(2)),
    "gemm without addend": lambda b: b(Gemm(transpose_b=True), b.x("n", 3), b.numbers(2, 3)),
    "gemm with alpha and beta": lambda b: b(Gemm(2.0, 0.5, False, True), b.x("n", 3), b.numbers(2, 3), b.numbers(1, 2)),
    "gemm with a scalar addend": lambda b: b(Gemm(), b.x("n", 3), b.numbers(3, 2), np.float32(1)),
    "gemm with alpha and a run-time bias": lambda b: b(Gemm(2.0), b.x("n", 3), b.numbers(3, 2), b.x(2, name="bias")),
    "a transposed constant": lambda b: b(MatMul(), b.x("n", 3), b(Transpose((1, 0)), b.numbers(2, 3))),
    "gemm and an addition": lambda b: b(Add(), b(Gemm(), b.x("n", 3), b.numbers(3, 2), b.numbers(2)), b.numbers(2)),
}


def same_constant_twice(b):
    w = b.constant(b.numbers(1, 1), "w")
    return b(Gemm(0.5), b.x("n", 1), w, w)


REWRITTEN["gemm with the same constant twice"] = same_constant_twice


@pytest.mark.parametrize("make", REWRITTEN.values(), ids=REWRITTEN)
def test_rewritten(make):
    assert kinds(apply(make, PASS)) == ["FullyConnected"]


ADDITION_STAYS = {
    "an addend per row": lambda b: b(Add(), product(b, 4, 3), b.numbers(4, 1)),
    "an addend that broadcasts the product": lambda b: b(Add(), product(b, 1, 3), b.numbers(4, 2)),
    "an addend with more axes": lambda b: b(Add(), product(b), b.numbers(1, 1, 2)),
    "an addend that is not constant": lambda b: b(Add(), product(b), b.x(2, name="bias")),
    "another operator": lambda b: b(Sub(), b.x("n", 2, name="z"), product(b)),
    "the product is an output": lambda b: (b(Add(), (y := product(b)), b.numbers(2)), y),
}


@pytest.mark.parametrize("make", ADDITION_STAYS.values(), ids=ADDITION_STAYS)
def test_the_product_is_rewritten_and_the_addition_stays(make):
    assert kinds(apply(make, PASS))[0] == "FullyConnected"
    assert len(kinds(apply(make, PASS))) == 2


STAYS = {
    "the matrix comes first": lambda b: b(MatMul(), b.numbers(2, 3), b.x(3, "n")),
    "no constant operand": lambda b: b(MatMul(), b.x("n", 3), b.x(3, 2, name="w")),
    "a vector": lambda b: b(MatMul(), b.x(3), b.numbers(3, 2)),
    "a constant vector": lambda b: b(MatMul(), b.x("n", 3), b.numbers(3)),
    "a batch of matrices": lambda b: b(MatMul(), b.x(2, 4, 3), b.numbers(2, 3, 5)),
    "integers": lambda b: b(MatMul(), b.x("n", 3, element="int32"), np.ones((3, 2), np.int32)),
    "gemm, input transposed": lambda b: b(Gemm(transpose_a=True), b.x(3, "n"), b.numbers(3, 2)),
    "gemm, run-time weight": lambda b: b(Gemm(), b.x("n", 3), b.x(3, 2, name="w"), b.numbers(2)),
    "gemm, addend per row": lambda b: b(Gemm(), b.x(4, 3), b.numbers(3, 2), b.numbers(4, 1)),
    "gemm, addend per element": lambda b: b(Gemm(), b.x(4, 3), b.numbers(3, 2), b.numbers(4, 2)),
    "gemm, scaled run-time bias": lambda b: b(Gemm(1.0, 2.0), b.x("n", 3), b.numbers(3, 2), b.x(2, name="c")),
    "a convolution's bias": lambda b: b(Add(), b.conv(b.x("n", 1, 2, 2)), b.numbers(2, 1, 1)),
}


test_stays = stays(PASS, STAYS)


def test_the_weight_keeps_its_name_and_is_contiguous():
    graph = apply(lambda b: b(Add(), product(b), b.constant(b.numbers(2), "b")), PASS)
    assert set(graph.constants) == {"w", "b"}
    assert graph.constants["w"].data.shape == (2, 3)
    assert graph.constants["w"].data.flags.c_contiguous


def test_a_weight_in_the_right_layout_is_not_copied():
    before = built(lambda b: b(Gemm(transpose_b=True), b.x("n", 3), b.numbers(2, 3), b.numbers(2)))
    after = apply(lambda b: b(Gemm(transpose_b=True), b.x("n", 3), b.numbers(2, 3), b.numbers(2)), PASS)
    assert list(before.constants) == list(after.constants)


def test_a_weight_that_is_read_transposed_and_not_is_not_copied():
    def make(b):
        words = b.constant(b.numbers(5, 3), "words")
        return b(MatMul(), b(Add(), b.x(5, 3), words), b(Transpose((1, 0)), words))

    graph = apply(make, PASS)
    assert list(graph.constants) == ["words"]
    assert "FullyConnected" in kinds(graph)


def test_two_layers_may_share_a_weight():
    def make(b):
        w = b.constant(b.numbers(3, 3), "w")
        return b(MatMul(), b(Tanh(), b(MatMul(), b.x("n", 3), w)), w)

    assert set(apply(make, PASS).constants) == {"w", "w_1"}


def make(b):
    w = b.constant(np.array([[1, 2], [3, 4], [5, 6]], np.float32), "w")
    y = b(MatMul(), b.x("n", 3), w, name="product")
    return b(Add(), y, b.constant(np.array([1, 2], np.float32), "b"), name="sum")


test_golden = example(PASS, make)
