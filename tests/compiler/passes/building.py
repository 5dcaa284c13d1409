"""A builder of small graphs for the tests of passes, and checks of what every pass must preserve."""

from collections.abc import Callable

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, TensorType, Value, verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.passes import PASSES

DYNAMIC_SIZES = {"n": 3, "h": 6, "w": 5}
Tanh, Sigmoid, HardSwish, Neg, Abs, Exp = (
    next(operator for operator in FUNCTIONS if operator.__name__ == name)
    for name in ("Tanh", "Sigmoid", "HardSwish", "Neg", "Abs", "Exp")
)
ReduceMean, ReduceSum, ReduceMax, ReduceL1 = (
    next(operator for operator in REDUCTIONS if operator.__name__ == name)
    for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL1")
)


class Build:
    """Builds a graph, one node per call; inputs given as arrays become constants."""

    def __init__(self):
        self.graph = Graph("test")
        self.random = np.random.default_rng(0)

    def x(self, *shape, name="x", element="float32") -> Value:
        return self.graph.placeholder(name, TensorType(element, shape))

    def __call__(self, operator, *inputs, name=None) -> Value:
        values = [self.constant(x) if isinstance(x, np.ndarray | np.generic) else x for x in inputs]
        return self.graph.add(operator, *values, name=name).outputs[0]

    def constant(self, array, name="c") -> Value:
        return self.graph.constant(name, np.asarray(array))

    def numbers(self, *shape) -> np.ndarray:
        return self.random.standard_normal(shape).astype(np.float32)

    def conv(self, x, features=2, size=1, bias=True, name="conv", z=None, **attributes) -> Value:
        weight = self.constant(self.numbers(features, x.type.shape[1], size, size), f"{name}.weight")
        offset = self.constant(self.numbers(features), f"{name}.bias") if bias else None
        return self(conv(**attributes), x, weight, offset, z, name=name)


def conv(**attributes) -> Conv:
    return Conv(**{"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), **attributes})


def kinds(graph: Graph) -> list[str]:
    """Return the operators' names, in topological order."""
    return [node.operator.name for node in graph.topological()]


def built(make: Callable) -> Graph:
    """Return the graph that a function builds; the function gets a `Build` and returns the output, or several."""
    build = Build()
    outputs = make(build)
    for i, value in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
        build.graph.output(value, f"y{i or ''}")
    return build.graph


def apply(make: Callable, name: str) -> Graph:
    """Run one pass to a fixed point, and check the invariants of passes."""
    before = built(make)
    graph = before.copy()
    changed = [PASSES[name](graph)]
    while changed[-1]:
        verify(graph)
        assert len(changed) < 10
        changed.append(PASSES[name](graph))
    assert changed[0] == (to_text(graph) != to_text(before)), "the pass must return whether it changed anything"
    check_same(before, graph)
    return graph


def check_same(before: Graph, after: Graph, *, names: bool = True, **tolerance) -> None:
    """Check that two graphs have the same signature and compute the same; with `names`, also all values in both."""
    assert {name: value.type for name, value in before.placeholders.items()} == {
        name: value.type for name, value in after.placeholders.items()
    }
    assert [(name, value.type) for name, value in before.outputs.items()] == [
        (name, value.type) for name, value in after.outputs.items()
    ]
    inputs = {name: numbers_for(value.type) for name, value in before.placeholders.items()}
    expected, actual = Interpreter(before).run(inputs), Interpreter(after).run(inputs)
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})
    if names:
        _check_names(before, after, inputs)


def _check_names(before: Graph, after: Graph, inputs) -> None:
    """Check that a name that occurs before and after denotes the same tensor."""
    arrays: dict[str, np.ndarray] = {}
    Interpreter(before).run(inputs, observe=lambda value, array: arrays.setdefault(value.name, array))

    def compare(value, array):
        if value.name in arrays:
            np.testing.assert_allclose(array, arrays[value.name], rtol=1e-4, atol=1e-5, err_msg=value.name)

    Interpreter(after).run(inputs, observe=compare)


def numbers_for(type: TensorType) -> np.ndarray:
    shape = [DYNAMIC_SIZES.get(axis, 3) if isinstance(axis, str) else axis for axis in type.shape]
    random = np.random.default_rng(1)
    if type.is_float:
        return (2 * random.standard_normal(shape)).astype(type.element)
    return random.integers(0, 2 if type.element == "bool" else 100, shape).astype(type.element)


# -- tests of a pass, as tables: a module assigns what these return


def becomes(name: str, cases: dict[str, tuple[Callable, list[str]]]):
    """Return a test that a pass leaves each graph with these operators."""

    @pytest.mark.parametrize(("make", "expected"), cases.values(), ids=cases)
    def test(make, expected):
        assert kinds(apply(make, name)) == expected

    return test


def stays(name: str, cases: dict[str, Callable]):
    """Return a test that a pass leaves each graph as it is, after dead code is removed."""

    @pytest.mark.parametrize("make", cases.values(), ids=cases)
    def test(make):
        assert kinds(apply(make, name)) == kinds(built(make))

    return test


def example(name: str, make: Callable):
    """Return a test of a graph's text before and after a pass."""

    def test(golden):
        golden(f"compiler/golden/passes/{name}.txt", before_and_after(make, name))

    return test


def before_and_after(make: Callable, name: str) -> str:
    """Return the text for a golden file."""
    return f"# before {name}\n{to_text(built(make))}\n# after\n{to_text(apply(make, name))}"
