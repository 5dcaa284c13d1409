"""The integers of a quantised graph, without the conversions at its ends."""

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale
from tests.tools.compiler.integer_graph import integer_graph

_PARAMETERS = Quantization((0.25,), (0,))


def test_inner_conversions_and_shared_inputs_stay():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (4,)))
    stored = graph.add(Quantize("int8", _PARAMETERS), x, name="stored").outputs[0]
    halved = graph.add(Rescale(Quantization((0.5,), (0,))), stored, name="halved").outputs[0]
    graph.output(graph.add(Dequantize(), halved, name="real").outputs[0], "y")
    graph.output(stored, "z")
    integers = integer_graph(graph)
    assert list(integers.placeholders) == ["stored"]
    assert list(integers.nodes) == ["halved"]
    results = Interpreter(integers).run({"stored": np.array([-8, -1, 3, 100], np.int8)})
    np.testing.assert_array_equal(results["y"], [-4, 0, 2, 50])
    np.testing.assert_array_equal(results["z"], [-8, -1, 3, 100])
