"""Comparison of the CPU target with the oracle."""

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter


def assert_agree(graph, outputs, inputs, relative=1e-4):
    """Check outputs against the interpreter's: the same NaN and infinities, all else within a relative bound."""
    expected = Interpreter(graph).run(inputs)
    assert list(outputs) == list(expected)
    for name, array in expected.items():
        actual = outputs[name]
        assert (actual.dtype, actual.shape) == (array.dtype, array.shape), name
        if array.dtype.kind != "f":
            np.testing.assert_array_equal(actual, array, err_msg=name)
            continue
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(array), err_msg=name)
        finite = np.isfinite(array)
        np.testing.assert_array_equal(actual[~finite & ~np.isnan(array)], array[~finite & ~np.isnan(array)])
        scale = max(1e-3, np.abs(array[finite]).max(initial=0))
        assert np.abs(actual[finite] - array[finite]).max(initial=0) <= relative * scale, name
