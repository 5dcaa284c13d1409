"""Random models: the optimised graph computes the same as ONNX Runtime on the original."""

import numpy as np
import onnxruntime
from hypothesis import HealthCheck, given, settings

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from tests.compiler.random_models import models


def run_original(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {"x": x}), strict=True))


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(models())
def test_optimisation_preserves_the_semantics(example):
    model, x = example
    expected = run_original(model, x)
    graph = import_model(model)
    original = to_text(graph)
    optimized = optimize(graph, check=True)
    assert to_text(graph) == original, "optimize must not modify its argument"
    assert {name: value.type for name, value in graph.outputs.items()} == {
        name: value.type for name, value in optimized.outputs.items()
    }
    actual = Interpreter(optimized).run({"x": x})
    for name, array in expected.items():
        scale = max(1.0, float(np.abs(array).max(initial=0)))
        np.testing.assert_allclose(actual[name], array, rtol=1e-3, atol=1e-4 * scale, err_msg=name)
    check_idempotent(optimized)


def check_idempotent(optimized):
    changes = []
    result = optimize(optimized, observe=lambda name, graph: changes.append(name))
    assert changes == []
    verify(result)
    assert to_text(result) == to_text(optimized)
