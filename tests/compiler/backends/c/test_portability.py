"""What passes make of operators that have C has C, too, so that optimisation never makes a model less portable."""

import sys

import numpy as np
import pytest

from mlhood.compiler.backends.c.rules import RULES
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.operators import OPERATORS
from mlhood.compiler.operators.arithmetic import Add, Div, Max, Min, Mul, Pow, Sub
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, HardSigmoid, Relu
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from mlhood.compiler.passes import PASSES, optimize
from tests.compiler.backends.c.programs import COMPILERS, run_all
from tests.compiler.passes.building import Build, ReduceMean, Sigmoid, Tanh

Erf, Sqrt = (next(each for each in FUNCTIONS if each.__name__ == name) for name in ("Erf", "Sqrt"))
SHAPE = (2, 3, 4, 4)
POOL = ((3, 3), (1, 1), (0, 0, 0, 0), (1, 1))
AROUND = Pad((0, 0, 1, 1, 0, 0, 1, 1))


class Typed(Build):
    """Builds graphs of one element type."""

    def __init__(self, element):
        super().__init__()
        self.element = element
        self.input = self.x(*SHAPE, element=element)

    def numbers(self, *shape):
        return super().numbers(*shape).astype(self.element)

    def number(self, value):
        return np.array(value, self.element)


def layer_normalization(b, x):
    centred = b(Sub(), x, b(ReduceMean((3,)), x))
    variance = b(ReduceMean((3,)), b(Pow(), centred, b.number(2)))
    normal = b(Div(), centred, b(Sqrt(), b(Add(), variance, b.number(1e-5))))
    return b(Add(), b(Mul(), normal, b.numbers(4)), b.numbers(4))


def gelu(b, x):
    shifted = b(Add(), b(Erf(), b(Div(), x, b.number(2**0.5))), b.number(1))
    return b(Mul(), b(Mul(), x, shifted), b.number(0.5))


def gelu_by_tanh(b, x):
    cube = b(Mul(), b(Pow(), x, b.number(3)), b.number(0.044715))
    inner = b(Tanh(), b(Mul(), b(Add(), x, cube), b.number((2 / np.pi) ** 0.5)))
    return b(Mul(), b(Mul(), x, b(Add(), inner, b.number(1))), b.number(0.5))


def normalized(b, x):
    statistics = [b.numbers(2), b.numbers(2), b.numbers(2), np.abs(b.numbers(2)) + b.number(1)]
    return b(BatchNormalization(), b.conv(x), *statistics)


def weights_in_blocks(b, x):
    integers, scale = np.arange(-10, 10, dtype=np.int8).reshape(4, 5), b.numbers(2, 5).repeat(2, axis=0)
    return b(Add(), b(MatMul(), x, b(Mul(), b(Cast(b.element), integers), scale)), b.numbers(5))


# From x to what a pass fuses, by the operators that it makes.
FUSED = {
    "Silu": lambda b, x: b(Mul(), x, b(Sigmoid(), x)),
    "HardSwish": lambda b, x: b(Mul(), b(HardSigmoid(1 / 6, 0.5), x), x),
    "HardSigmoid": lambda b, x: b(Div(), b(Clip(0.0, 6.0), b(Add(), x, b.number(3))), b.number(6)),
    "Gelu": gelu,
    "Gelu by tanh": gelu_by_tanh,
    "LayerNormalization": layer_normalization,
    "Clip": lambda b, x: b(Min(), b(Max(), x, b.number(-1)), b.number(1)),
    "Relu": lambda b, x: b(Max(), x, b.number(0)),
    "AddActivation": lambda b, x: b(Relu(), b(Add(), x, b.numbers(3, 1, 4))),
    "GlobalAveragePool": lambda b, x: b(ReduceMean((2, 3)), x),
    "FullyConnected": lambda b, x: b(Add(), b(MatMul(), x, b.numbers(4, 5)), b.numbers(5)),
    "BlockDense": weights_in_blocks,
    "Conv with normalisation": normalized,
    "Conv with padding": lambda b, x: b.conv(b(AROUND, x), size=3),
    "MaxPool with padding": lambda b, x: b(MaxPool(*POOL), b(AROUND, b(Relu(), x))),
    "AveragePool with padding": lambda b, x: b(AveragePool(*POOL), b(AROUND, x)),
}


def graphs():
    """Return the graphs before optimisation, by name."""
    result = {}
    for name, make in FUSED.items():
        for element in ("float32", "float64"):
            b = Typed(element)
            b.graph.output(make(b, b.input), "y")
            result[name, element] = b.graph
    return result


def numbers(element):
    return np.random.default_rng(1).standard_normal(SHAPE).astype(element)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_passes_make_has_c(tmp_path, compiler):
    before = graphs()
    after = {name: optimize(graph) for name, graph in before.items()}
    cases = [(lower(graph), {"x": numbers(name[1])}) for graphs in (before, after) for name, graph in graphs.items()]
    results = run_all(cases, tmp_path / "c", compiler)
    for (name, graph), plain, optimized in zip(before.items(), results, results[len(before) :], strict=False):
        expected = Interpreter(graph).run({"x": numbers(name[1])})["y"]
        for outputs in (plain, optimized):
            np.testing.assert_allclose(outputs["y"], expected, rtol=1e-4, atol=1e-5, err_msg=str(name))
    made = {node.operator.name for graph in after.values() for node in graph.nodes.values()}
    named = [each for run in PASSES.values() for each in vars(sys.modules[run.__module__]).values()]
    only_made = {name for name, operator in OPERATORS.items() if operator in named and not operator.onnx}
    assert {"AddActivation", "BlockDense", "FullyConnected", "Silu"} <= only_made & made
    assert only_made <= made | RULES.keys()
