"""Fusion of GELU from its parts."""

import math

import numpy as np
import onnx
import pytest
import torch

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.passes import optimize
from tests.compiler.passes.building import Tanh, apply, example, kinds, stays

PASS = "fuse_gelu"
Erf = next(function for function in FUNCTIONS if function.__name__ == "Erf")
HALF, ONE, TWO, THREE = (np.float32(number) for number in (0.5, 1, 2, 3))
ROOT, INVERSE = np.float32(math.sqrt(2)), np.float32(math.sqrt(0.5))
OUTER, CUBIC = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)


def x_of(b):
    return b.x("n", 4)


def one_plus(b, value):
    return b(Add(), value, ONE)


def by_erf(b, x):
    return one_plus(b, b(Erf(), b(Div(), x, ROOT)))


def by_tanh(b, x, cube=None):
    cube = b(Pow(), x, THREE) if cube is None else cube
    return one_plus(b, b(Tanh(), b(Mul(), b(Add(), x, b(Mul(), CUBIC, cube)), OUTER)))


def factored(b, x):
    """(1 + tanh(x 0.79788 (1 + 0.044715 x x))), as some transformers write it."""
    inner = one_plus(b, b(Mul(), b(Mul(), CUBIC, x), x))
    return one_plus(b, b(Tanh(), b(Mul(), b(Mul(), x, OUTER), inner)))


FUSED = {
    "(x gate) 0.5": lambda b: b(Mul(), b(Mul(), (x := x_of(b)), by_erf(b, x)), HALF),
    "0.5 (gate x)": lambda b: b(Mul(), HALF, b(Mul(), by_erf(b, x := x_of(b)), x)),
    "(0.5 x) gate": lambda b: b(Mul(), b(Mul(), HALF, x := x_of(b)), by_erf(b, x)),
    "x (gate 0.5)": lambda b: b(Mul(), x := x_of(b), b(Mul(), by_erf(b, x), HALF)),
    "x gate / 2": lambda b: b(Div(), b(Mul(), by_erf(b, x := x_of(b)), x), TWO),
    "the argument is a product": lambda b: b(
        Mul(), b(Mul(), (x := x_of(b)), HALF), b(Add(), ONE, b(Erf(), b(Mul(), INVERSE, x)))
    ),
    "x is a product": lambda b: b(Mul(), b(Mul(), (x := b(Mul(), x_of(b), b.numbers(4))), by_erf(b, x)), HALF),
    "tanh": lambda b: b(Mul(), b(Mul(), (x := x_of(b)), HALF), by_tanh(b, x)),
    "tanh, the cube a product": lambda b: b(
        Mul(), by_tanh(b, (x := x_of(b)), b(Mul(), b(Mul(), x, x), x)), b(Mul(), HALF, x)
    ),
    "tanh, the cube of a square": lambda b: b(
        Mul(), HALF, b(Mul(), (x := x_of(b)), by_tanh(b, x, b(Mul(), b(Pow(), x, TWO), x)))
    ),
    "tanh, x factored out": lambda b: b(Mul(), b(Mul(), HALF, x := x_of(b)), factored(b, x)),
}


@pytest.mark.parametrize("make", FUSED.values(), ids=FUSED)
def test_fused(make):
    assert kinds(apply(make, PASS))[-1:] == ["Gelu"]
    assert len(kinds(apply(make, PASS))) <= 2  # "x is a product"


def with_other_reader(b):
    gate = by_erf(b, x := x_of(b))
    return b(Mul(), b(Mul(), x, gate), HALF), b(Tanh(), gate)


STAYS = {
    "another reader": with_other_reader,
    "the gate is an output": lambda b: ((gate := by_erf(b, x := x_of(b))), b(Mul(), b(Mul(), x, gate), HALF)),
    "another factor": lambda b: b(Mul(), b(Mul(), (x := x_of(b)), by_erf(b, x)), np.float32(0.4)),
    "another argument": lambda b: b(Mul(), b(Mul(), (x := x_of(b)), one_plus(b, b(Erf(), b(Div(), x, TWO)))), HALF),
    "another x": lambda b: b(Mul(), b(Mul(), b.x("n", 4, name="z"), by_erf(b, x_of(b))), HALF),
    "x squared": lambda b: b(Mul(), b(Mul(), b(Mul(), (x := x_of(b)), x), by_erf(b, x)), HALF),
    "no half": lambda b: b(Mul(), (x := x_of(b)), by_erf(b, x)),
    "divided by x": lambda b: b(Div(), b(Mul(), by_erf(b, x := x_of(b)), HALF), x),
    "another power": lambda b: b(Mul(), b(Mul(), (x := x_of(b)), HALF), by_tanh(b, x, b(Pow(), x, TWO))),
    "a factor that broadcasts": lambda b: b(
        Mul(), b(Mul(), (x := x_of(b)), by_erf(b, x)), np.full((2, 1, 1), 0.5, np.float32)
    ),
}


test_stays = stays(PASS, STAYS)


class Hugging(torch.nn.Module):
    """The approximation as BERT's successors write it."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@pytest.mark.parametrize("module", [torch.nn.GELU(), torch.nn.GELU("tanh"), Hugging()], ids=["erf", "tanh", "own"])
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exports_of_torch(module, opset, tmp_path):
    path = tmp_path / "gelu.onnx"
    torch.onnx.export(module, (torch.zeros(2, 4),), path, dynamo=False, opset_version=opset)
    assert kinds(optimize(import_model(onnx.load(path)))) == ["Gelu"]


test_golden = example(PASS, FUSED["(x gate) 0.5"])
