"""A model on every target, and exported, against ONNX Runtime."""

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import LOWERINGS
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.onnx.importer import import_model
from tests.compiler.operators.agreement import check_outputs, session_of


def assert_agreement(model, inputs, *, wanted=None, xla=True, constants=None, export=True, **tolerance):
    """Compare the interpreter, the cpu, XLA and ONNX Runtime on the exported graph with ONNX Runtime on the model."""
    wanted = session_of(model).run(None, inputs) if wanted is None else wanted
    graph = import_model(model, constants=constants)
    verify(graph)
    given = {name: array for name, array in inputs.items() if name in graph.placeholders}
    runs = {"interpreter": Interpreter(graph).run(given), "cpu": Cpu(LOWERINGS["cpu"](graph)).run(given)}
    if xla:
        runs["xla"] = Xla(graph).run(given)
    if export:
        exported = session_of(to_onnx(graph)).run(None, given)
        runs["exported"] = dict(zip(graph.outputs, exported, strict=True))
    for runner, outputs in runs.items():
        check_outputs(outputs, wanted, tolerance, runner)
    return graph
