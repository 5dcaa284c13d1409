"""Fusion of HardSigmoid, HardSwish and SiLU from their parts."""

import numpy as np
import onnx
import pytest
import torch

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add, Div, Mul
from mlhood.compiler.operators.elementwise import Clip, HardSigmoid
from mlhood.compiler.passes import optimize
from tests.compiler.passes.building import Sigmoid, Tanh, becomes, example, kinds, stays

PASS = "fuse_gates"
THREE, SIX, SIXTH = np.float32(3), np.float32(6), np.float32(1 / 6)


def x_of(b):
    return b.x("n", 2, 4, 4)


def clipped(b, x, shift=THREE, limits=(0.0, 6.0)):
    return b(Clip(*limits), b(Add(), x, shift))


FUSED = {
    "SiLU": (lambda b: b(Mul(), (x := x_of(b)), b(Sigmoid(), x)), ["Silu"]),
    "SiLU, commuted": (lambda b: b(Mul(), b(Sigmoid(), x := x_of(b)), x), ["Silu"]),
    "SiLU of SiLU": (
        lambda b: b(Mul(), (y := b(Mul(), (x := x_of(b)), b(Sigmoid(), x))), b(Sigmoid(), y)),
        ["Silu", "Silu"],
    ),
    "x HardSigmoid(x)": (lambda b: b(Mul(), (x := x_of(b)), b(HardSigmoid(1 / 6), x)), ["HardSwish"]),
    "x (clip / 6)": (lambda b: b(Mul(), (x := x_of(b)), b(Div(), clipped(b, x), SIX)), ["HardSwish"]),
    "(x clip) / 6": (lambda b: b(Div(), b(Mul(), (x := x_of(b)), clipped(b, x)), SIX), ["HardSwish"]),
    "(clip x) sixth": (lambda b: b(Mul(), SIXTH, b(Mul(), clipped(b, x := x_of(b)), x)), ["HardSwish"]),
    "clip / 6": (lambda b: b(Div(), clipped(b, x_of(b)), SIX), ["HardSigmoid"]),
    "3 + x": (lambda b: b(Mul(), b(Clip(0.0, 6.0), b(Add(), THREE, x_of(b))), SIXTH), ["HardSigmoid"]),
}


test_fused = becomes(PASS, FUSED)


STAYS = {
    "another slope": lambda b: b(Mul(), (x := x_of(b)), b(HardSigmoid(0.2), x)),
    "another shift": lambda b: b(Div(), clipped(b, x_of(b), np.float32(2)), SIX),
    "other limits": lambda b: b(Div(), clipped(b, x_of(b), limits=(0.0, 5.0)), SIX),
    "another divisor": lambda b: b(Div(), clipped(b, x_of(b)), THREE),
    "6 / clip": lambda b: b(Div(), SIX, b(Add(), clipped(b, x_of(b)), THREE)),
    "squeeze and excitation": lambda b: b(Mul(), b.x("n", 2, 4, 4, name="z"), b(Sigmoid(), b.x("n", 2, 1, 1))),
    "the gate is read twice": lambda b: (b(Mul(), (x := x_of(b)), (g := b(Sigmoid(), x))), b(Tanh(), g)),
    "the gate is an output": lambda b: (b(Mul(), (x := x_of(b)), (g := b(Sigmoid(), x))), g),
    "the shift broadcasts": lambda b: b(Div(), clipped(b, b.x(2), np.full((3, 1), 3, np.float32)), SIX),
}


test_stays = stays(PASS, STAYS)


@pytest.mark.parametrize(("module", "expected"), [(torch.nn.SiLU(), "Silu"), (torch.nn.Hardswish(), "HardSwish")])
@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_exports_of_torch(module, expected, opset, tmp_path):
    path = tmp_path / "gate.onnx"
    torch.onnx.export(module, (torch.zeros(2, 4),), path, dynamo=False, opset_version=opset)
    assert kinds(optimize(import_model(onnx.load(path)))) == [expected]


test_golden = example(PASS, FUSED["x (clip / 6)"][0])
