"""Windows of spectra against ONNX Runtime, on every target."""

import numpy as np
import pytest

from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single, single
from tests.tools.compiler.conformance import cases

WINDOWS = ["HannWindow", "HammingWindow", "BlackmanWindow"]


def window(op_type, size, **attributes):
    return single(op_type, {"size": np.array(size)}, opset=17, constants=["size"], **attributes)


@pytest.mark.parametrize("op_type", WINDOWS)
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("attributes", [{}, {"periodic": 0}, {"output_datatype": 10}])
def test_window(op_type, size, attributes):
    tolerance = {"atol": 1e-3} if "output_datatype" in attributes else {}
    inputs = {"size": np.array(size)}
    agree_single(op_type, inputs, opset=17, constants=["size"], attributes=attributes, **tolerance)


@pytest.mark.parametrize("case", [case for case in cases() if case.operators & set(WINDOWS)], ids=lambda c: c.name)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_the_node_tests_pass(case, backend):
    case.run(backend=backend)


@pytest.mark.parametrize(
    ("size", "attributes", "message"),
    [
        (1, {"periodic": 0}, "at least two"),
        (2**40, {}, "larger constants"),
        (4, {"output_datatype": 8}, "not supported"),
    ],
)
def test_invalid_windows(size, attributes, message):
    with pytest.raises(CompilerError, match=message):
        import_model(window("HannWindow", size, **attributes))
