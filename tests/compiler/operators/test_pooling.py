"""The largest of each window, one axis after the other: exactly what a look at all windows at once gives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.operators.pooling import MaxPool

FEW = settings(max_examples=100)
DTYPES = st.sampled_from(["float16", "float32", "float64", "int8", "uint8"])


def whole_windows(operator: MaxPool, x: np.ndarray) -> np.ndarray:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return operator.window.view(x, lowest).max(axis=tuple(range(x.ndim, 2 * x.ndim - 2)))


@FEW
@given(data=st.data(), dtype=DTYPES, ceil=st.booleans())
def test_the_largest_is_found_axis_by_axis(data, dtype, ceil):
    def one_each(low, high):
        return tuple(data.draw(st.integers(low, high)) for _ in range(axes))

    axes = data.draw(st.integers(1, 3))
    kernel, strides, dilations = one_each(1, 3), one_each(1, 3), one_each(1, 2)
    spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    pads = tuple(data.draw(st.integers(0, span - 1)) for span in (*spans, *spans))
    operator = MaxPool(kernel, strides, pads, dilations, ceil)
    x = np.random.default_rng(data.draw(st.integers(0, 99))).normal(0, 40, (2, 2, *one_each(5, 8))).astype(dtype)
    if x.dtype.kind == "f":
        x.flat[:: data.draw(st.integers(5, 50))] = np.nan
    want, got = whole_windows(operator, x), operator.evaluate(x)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_without_padding_nothing_is_copied():
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    assert MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1)).window.padded(x, -np.inf) is x
    assert MaxPool((3, 3), (2, 2), (0,) * 4, (1, 1), ceil=True).window.padded(x, -np.inf).shape == (1, 2, 5, 5)
