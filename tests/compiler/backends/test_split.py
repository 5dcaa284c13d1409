"""A graph in two parts: the target's and the interpreter's."""

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import Split, has_data_dependent_lengths
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.onnx_operator import OnnxOperator


def test_each_part_computes_its_own_nodes():
    graph, parts = Graph(), []
    x = graph.placeholder("x", TensorType("float32", (4,)))
    early = graph.add(Relu(), x, name="early").outputs[0]
    places = graph.add(OnnxOperator("NonZero", 13), early, name="places").outputs[0]
    for value in (early, places):
        graph.output(value)

    def prepare(part):
        parts.append(list(part.nodes))
        return Interpreter(part)

    assert has_data_dependent_lengths(graph)
    results = Split(graph, prepare).run({"x": np.array([1, -1, 0, 2], np.float32)})
    assert parts == [["early"]]
    np.testing.assert_array_equal(results["places"], [[0, 3]])
    np.testing.assert_array_equal(results["early"], [1, 0, 0, 2])
