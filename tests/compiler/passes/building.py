"""Small graphs for the tests of passes, and what every pass must keep."""

from collections.abc import Callable

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, TensorType, Value, verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.elementwise import FUNCTIONS
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.passes import PASSES

OPEN = {"n": 3, "h": 6, "w": 5}
Tanh, Sigmoid, HardSwish, Neg, Abs, Exp = (
    next(one for one in FUNCTIONS if one.__name__ == name)
    for name in ("Tanh", "Sigmoid", "HardSwish", "Neg", "Abs", "Exp")
)
ReduceMean, ReduceSum, ReduceMax, ReduceL1 = (
    next(one for one in REDUCTIONS if one.__name__ == name)
    for name in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL1")
)


class Build:
    """A graph that grows by calls; arrays among the inputs become constants."""

    def __init__(self):
        self.graph = Graph("test")
        self.random = np.random.default_rng(0)

    def x(self, *shape, name="x", element="float32") -> Value:
        return self.graph.placeholder(name, TensorType(element, shape))

    def __call__(self, operator, *inputs, name=None) -> Value:
        values = [self.constant(one) if isinstance(one, np.ndarray | np.generic) else one for one in inputs]
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
    """Return the operators' names, in order."""
    return [node.operator.name for node in graph.topological()]


def built(make: Callable) -> Graph:
    """Return the graph that a function makes of a `Build`; what it returns is the output, or several."""
    build = Build()
    made = make(build)
    for i, value in enumerate(made if isinstance(made, tuple) else (made,)):
        build.graph.output(value, f"y{i or ''}")
    return build.graph


def apply(make: Callable, name: str) -> Graph:
    """Run one pass until it changes nothing, and hold it to what all passes promise."""
    before = built(make)
    graph = before.copy()
    changed = [PASSES[name](graph)]
    while changed[-1]:
        verify(graph)
        assert len(changed) < 10
        changed.append(PASSES[name](graph))
    assert changed[0] == (to_text(graph) != to_text(before)), "the pass says whether it changed something"
    check_same(before, graph)
    return graph


def check_same(before: Graph, after: Graph, *, names: bool = True, **tolerance) -> None:
    """Check that two graphs have the same signature and compute the same, under `names` value by value."""
    assert {one: value.type for one, value in before.placeholders.items()} == {
        one: value.type for one, value in after.placeholders.items()
    }
    assert [(name, value.type) for name, value in before.outputs.items()] == [
        (name, value.type) for name, value in after.outputs.items()
    ]
    inputs = {name: numbers_for(value.type) for name, value in before.placeholders.items()}
    wanted, got = Interpreter(before).run(inputs), Interpreter(after).run(inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, **{"rtol": 1e-4, "atol": 1e-5, **tolerance})
    if names:
        _check_names(before, after, inputs)


def _check_names(before: Graph, after: Graph, inputs) -> None:
    """A name that a node's value has before and after stands for the same tensor."""
    seen: dict[str, np.ndarray] = {}
    Interpreter(before).run(inputs, observe=lambda value, array: seen.setdefault(value.name, array))

    def compare(value, array):
        if value.name in seen:
            np.testing.assert_allclose(array, seen[value.name], rtol=1e-4, atol=1e-5, err_msg=value.name)

    Interpreter(after).run(inputs, observe=compare)


def numbers_for(type: TensorType) -> np.ndarray:
    shape = [OPEN.get(axis, 3) if isinstance(axis, str) else axis for axis in type.shape]
    random = np.random.default_rng(1)
    if type.is_float:
        return (2 * random.standard_normal(shape)).astype(type.element)
    return random.integers(0, 2 if type.element == "bool" else 100, shape).astype(type.element)


def before_and_after(make: Callable, name: str) -> str:
    """Return the text for a golden file."""
    return f"# before {name}\n{to_text(built(make))}\n# after\n{to_text(apply(make, name))}"
