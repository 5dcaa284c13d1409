"""Weight-only quantisation: what is stored, that targets agree, and what it costs."""

import numpy as np
import pytest

from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.targets import prepare
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.operators.elementwise import Gelu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.quantize import WeightFormat, quantize_weights, sqnr
from mlhood.compiler.quantize.weights import round_to_nearest
from mlhood.errors import CompilerError

FORMATS = {
    "int8": WeightFormat(8),
    "int8 in blocks": WeightFormat(8, 24),
    "int4": WeightFormat(4, 32),
    "int4 in blocks of 128": WeightFormat(4, 128),
}
DECIBELS = {"int8": 35, "int8 in blocks": 35, "int4": 9, "int4 in blocks of 128": 9}


def layers():
    """Return a graph of two dense layers with a GELU in between."""
    graph, draw = Graph("layers"), np.random.default_rng(0)
    x = graph.placeholder("x", TensorType("float32", ("n", 3, 300)))
    arrays = {"w1": (70, 300), "b1": (70,), "w2": (9, 70)}
    w1, b1, w2 = (graph.constant(name, draw.standard_normal(s, np.float32)) for name, s in arrays.items())
    hidden = graph.add(FullyConnected(), x, w1, b1, name="first").outputs[0]
    inner = graph.add(Gelu(), hidden, name="gelu").outputs[0]
    graph.output(graph.add(FullyConnected(("Relu",)), inner, w2, name="second").outputs[0], "y")
    return graph


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("batch", [1, 5])
def test_targets_and_onnx_runtime_agree(form, batch):
    import onnxruntime

    graph = layers()
    x = np.random.default_rng(1).standard_normal((batch, 3, 300), np.float32)
    real = prepare(graph.copy(), "interpreter").run({"x": x})["y"]
    assert quantize_weights(graph, FORMATS[form]) == 2
    verify(graph)
    assert not [node for node in graph.nodes.values() if isinstance(node.operator, FullyConnected)]
    expected = prepare(graph, "interpreter").run({"x": x})["y"]
    assert DECIBELS[form] < sqnr(real, expected) < DECIBELS[form] + 25
    for target in ("cpu", "xla"):
        np.testing.assert_allclose(prepare(graph, target).run({"x": x})["y"], expected, rtol=1e-4, atol=1e-3)
    session = onnxruntime.InferenceSession(to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(np.asarray(session.run(None, {"x": x})[0]), expected, rtol=1e-4, atol=1e-3)


def test_the_cpu_decodes_weights_in_registers_and_fuses_the_activation():
    graph = layers()
    quantize_weights(graph, FORMATS["int4"])
    lowered = lower_for_cpu(graph)
    assert [node.operator.name for node in lowered.topological()] == ["BlockDense", "BlockDense"]
    kernels = Cpu(lowered).kernels({"x": np.zeros((1, 3, 300), np.float32)})
    assert [kernel for kernel, _ in kernels.values() if "product" in kernel] == ["int4_product"] * 2


def test_rounding_to_nearest():
    weight = np.array([[1.0, -8.0, 0.4, 0.0, 0.0], [0, 0, 0, -15.9, 16.0]], np.float32)
    integers, scale = round_to_nearest(weight, 4, 3)
    np.testing.assert_array_equal(scale, [[1, 0], [0, -2]])
    np.testing.assert_array_equal(integers, [[1, -8, 0, 0, 0], [0, 0, 0, 7, -8]])  # 7.95 is beyond the grid
    with pytest.raises(CompilerError, match="unknown format"):
        quantize_weights(layers(), WeightFormat(3))
