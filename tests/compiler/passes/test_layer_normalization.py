"""Fusion of layer normalisation from its parts."""

import numpy as np
import onnx
import pytest
import torch

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.passes import optimize
from tests.compiler.passes.building import ReduceMean, ReduceSum, Tanh, apply, example, kinds, stays

PASS = "fuse_layer_normalization"
Sqrt, Reciprocal = (
    next(function for function in FUNCTIONS if function.__name__ == name) for name in ("Sqrt", "Reciprocal")
)
EPSILON, ONE, TWO = (np.float32(number) for number in (1e-5, 1, 2))


def x_of(b):
    return b.x("n", 3, 4)


def centred(b, x, axes=(-1,), mean=ReduceMean, keep=True):
    return b(Sub(), x, b(mean(axes, keep), x))


def spread(b, d, axes=(-1,), square=None):
    square = b(Pow(), d, TWO) if square is None else square
    return b(Add(), b(ReduceMean(axes, True), square), EPSILON)


def normalised(b, x, axes=(-1,)):
    d = centred(b, x, axes)
    return b(Div(), d, b(Sqrt(), spread(b, d, axes)))


def affine(b, value, *shape):
    return b(Add(), b(Mul(), value, b.numbers(*shape)), b.numbers(*shape))


def by_product(b):
    d = centred(b, x_of(b))
    return b(Mul(), b(Reciprocal(), b(Sqrt(), spread(b, d, square=b(Mul(), d, d)))), d)


FUSED = {
    "scale and bias": (lambda b: affine(b, normalised(b, x_of(b)), 4), []),
    "two axes": (lambda b: affine(b, normalised(b, x_of(b), (-2, -1)), 3, 4), []),
    "scale": (lambda b: b(Mul(), b.numbers(4), normalised(b, x_of(b))), []),
    "a scale of one axis for two": (lambda b: affine(b, normalised(b, x_of(b), (1, 2)), 4), []),
    "parameters with axes of length 1": (lambda b: affine(b, normalised(b, x_of(b)), 1, 1, 4), []),
    "no parameters": (lambda b: normalised(b, x_of(b)), []),
    "the reciprocal": (by_product, []),
    "a power of 1/2": (lambda b: b(Div(), (d := centred(b, x_of(b))), b(Pow(), spread(b, d), np.float32(0.5))), []),
    "a power of -1/2": (lambda b: b(Mul(), (d := centred(b, x_of(b))), b(Pow(), spread(b, d), np.float32(-0.5))), []),
    "1 / root": (lambda b: b(Mul(), (d := centred(b, x_of(b))), b(Div(), ONE, b(Sqrt(), spread(b, d)))), []),
    "a scale along another axis stays": (lambda b: affine(b, normalised(b, x_of(b)), 3, 1), ["Mul", "Add"]),
    "a scale that is computed stays": (lambda b: b(Mul(), normalised(b, x_of(b)), b.x(4, name="g")), ["Mul"]),
    "the result is read twice": (
        lambda b: ((n := normalised(b, x_of(b))), b(Mul(), n, b.numbers(4))),
        ["Mul"],
    ),
}


@pytest.mark.parametrize(("make", "behind"), FUSED.values(), ids=FUSED)
def test_fused(make, behind):
    assert kinds(apply(make, PASS)) == ["LayerNormalization", *behind]


def with_two_means(b):
    d = centred(b, x := x_of(b))
    return b(Div(), d, b(Sqrt(), spread(b, d, square=b(Pow(), b(Sub(), x, b(ReduceSum((-1,), True), x)), TWO))))


STAYS = {
    "channels first": lambda b: normalised(b, x_of(b), (1,)),
    "different axes": lambda b: b(Div(), (d := centred(b, x_of(b))), b(Sqrt(), spread(b, d, (-2, -1)))),
    "a sum": lambda b: b(Div(), (d := centred(b, x_of(b), mean=ReduceSum)), b(Sqrt(), spread(b, d))),
    "another spread": with_two_means,
    "a cube": lambda b: b(
        Div(), (d := centred(b, x_of(b))), b(Sqrt(), spread(b, d, square=b(Pow(), d, np.float32(3))))
    ),
    "no root": lambda b: b(Div(), (d := centred(b, x_of(b))), spread(b, d)),
    "d is read twice": lambda b: (b(Div(), (d := centred(b, x_of(b))), b(Sqrt(), spread(b, d))), b(Tanh(), d)),
    "a dynamic axis": lambda b: normalised(b, b.x(3, "n")),
    "double": lambda b: b(Sub(), x := b.x("n", 4, element="float64"), b(ReduceMean((-1,), True), x)),
    "the mean drops its axis": lambda b: b(Div(), (d := centred(b, b.x(4, 4), keep=False)), b(Sqrt(), spread(b, d))),
}


test_stays = stays(PASS, STAYS)


@pytest.mark.parametrize("opset", [11, 16, 17])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exports_of_torch(opset, affine, tmp_path):
    path, module = tmp_path / "norm.onnx", torch.nn.LayerNorm((3, 4), elementwise_affine=affine)
    torch.onnx.export(module, (torch.zeros(2, 3, 4),), path, dynamo=False, opset_version=opset)
    assert kinds(optimize(import_model(onnx.load(path)))) == ["LayerNormalization"]


test_golden = example(PASS, FUSED["scale and bias"][0])
