"""ONNX's node tests on the interpreter and the cpu, with open axes, and exported: as ONNX Runtime, or the suite, says.

The other tests of operators are for what the suite does not ask: other element types, special numbers, errors.
"""

import contextlib

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, session_of
from tests.tools.compiler.conformance import cases

TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
OPERATORS: dict[str, list] = {}
for each in cases():
    nodes = each.model.graph.node
    if each.is_inference and len(nodes) == 1 and not nodes[0].domain and "expanded" not in each.name:
        OPERATORS.setdefault(nodes[0].op_type, []).append(each)


def with_needed_constants(case):
    """Return a test's model, with the inputs that must be known at compile time as constants, and its other inputs."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    inputs = {value.name: np.asarray(array) for value, array in zip(model.graph.input, case.data[0][0], strict=True)}
    while True:
        try:
            import_model(model)
        except ConstantNeeded as error:
            name = error.input_name
            model.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
            model.graph.input.remove(next(value for value in model.graph.input if value.name == name))
        else:
            return model, inputs


def agrees_with_onnxruntime(model, inputs):
    try:
        session_of(model).run(None, inputs)
    except Exception:  # of many classes: it does not have this operator, or this type
        return False
    try:
        agree(model, inputs, open_axes=False, exported=False, **TOLERANCE)
    except AssertionError:  # ONNX Runtime has errors, too
        return False
    return True


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.filterwarnings("ignore")  # overflows and divisions by zero
def test_an_operators_node_tests(name):
    for case in OPERATORS[name]:
        try:
            model, inputs = with_needed_constants(case)
        except CompilerError:  # how many these are is asked in tests/tools/compiler/test_conformance.py
            continue
        wanted = None
        if not agrees_with_onnxruntime(model, inputs):
            wanted = [np.asarray(array) for array in case.data[0][1]]
            agree(model, inputs, wanted=wanted, open_axes=False, exported=False, **TOLERANCE)
        for more in ({"exported": False}, {"open_axes": False}):
            with contextlib.suppress(CompilerError):  # open axes, or the opset, do not allow it
                agree(model, inputs, wanted=wanted, **more, **TOLERANCE)
