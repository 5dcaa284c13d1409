"""Copies between strided positions against NumPy's views: every byte of the result's buffer is compared."""

import itertools

import numpy as np
import pytest

from mlhood.errors import KernelError
from mlhood.kernels import strided_copy
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64
from tests.kernels.guards import CANARY, run_guarded

DTYPES = [np.uint8, np.float16, np.float32, np.int64]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)
# shape of the source, view of it, shape of the result's buffer, box in it
CASES = {
    "contiguous": ((3, 50), lambda x: x, (3, 50), lambda y: y),
    "scalar": ((), lambda x: x, (), lambda y: y),
    "long": ((20_011,), lambda x: x, (20_011,), lambda y: y),
    "empty": ((3, 0, 2), lambda x: x, (3, 0, 2), lambda y: y),
    "transposed": ((67, 45), lambda x: x.T, (45, 67), lambda y: y),
    "transposed large": ((300, 150), lambda x: x.T, (150, 300), lambda y: y),
    "images to channels last": ((2, 3, 9, 11), lambda x: x.transpose(0, 2, 3, 1), (2, 9, 11, 3), lambda y: y),
    "images to channels first": ((2, 9, 11, 3), lambda x: x.transpose(0, 3, 1, 2), (2, 3, 9, 11), lambda y: y),
    "heads": ((10, 4, 24), lambda x: x.transpose(1, 0, 2), (4, 10, 24), lambda y: y),
    "slice": ((6, 40), lambda x: x[1:5, 3:38], (4, 35), lambda y: y),
    "steps": ((9, 40), lambda x: x[1::3, 2::4], (3, 10), lambda y: y),
    "reversed": ((5, 33), lambda x: x[::-1, ::-1], (5, 33), lambda y: y),
    "reversed and transposed": ((20, 33), lambda x: x[::-1].T, (33, 20), lambda y: y),
    "expanded": ((3, 1, 5), lambda x: np.broadcast_to(x, (2, 3, 7, 5)), (2, 3, 7, 5), lambda y: y),
    "repeated": ((4, 1), lambda x: np.broadcast_to(x, (4, 77)), (4, 77), lambda y: y),
    "part of a concatenation": ((4, 13), lambda x: x, (4, 40), lambda y: y[:, 20:33]),
    "middle": ((2, 7, 7), lambda x: x, (2, 9, 9), lambda y: y[:, 1:8, 1:8]),
    "to every other": ((6, 9), lambda x: x, (6, 18), lambda y: y[:, ::2]),
    "pixels to depth": ((4, 6), lambda x: x.reshape(2, 2, 3, 2).transpose(1, 3, 0, 2), (2, 2, 2, 3), lambda y: y),
    "eight axes": ((2, 3) * 4, lambda x: x.transpose(7, 5, 3, 1, 6, 4, 2, 0), (3,) * 4 + (2,) * 4, lambda y: y),
}


def elements(dtype, shape):
    return np.asarray(np.random.default_rng(2).integers(1, 120, shape)).astype(dtype)


def canaries(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(size, CANARY, np.uint8).view(dtype).reshape(shape)


def offset(buffer, view):
    address, start = (array.__array_interface__["data"][0] for array in (view, buffer))
    return (address - start) // buffer.itemsize


def strides(view):
    return [stride // view.itemsize for stride in view.strides]


def check(x, x_view, y, y_view, target):
    positions = offset(x, x_view), offset(y, y_view)
    call = strided_copy.prepare(y_view.shape, strides(x_view), strides(y_view), x.itemsize, *positions, target=target)
    y_view[...] = x_view
    out = run_guarded(call, y.shape, x.dtype, x=x)
    assert out.tobytes() == y.tobytes()


@dtypes
@pytest.mark.parametrize("case", CASES)
def test_boxes_are_copied(case, dtype, target):
    x_shape, source, y_shape, box = CASES[case]
    x, y = elements(dtype, x_shape), canaries(dtype, y_shape)
    check(x, source(x), y, box(y), target)


@dtypes
def test_axes_are_permuted(dtype, target):
    x = elements(dtype, (3, 10, 1, 18))
    for axes in itertools.permutations(range(4)):
        view = x.transpose(axes)
        y = canaries(dtype, view.shape)
        check(x, view, y, y, target)


@dtypes
def test_rows_of_every_length_are_copied(dtype, target):
    x = elements(dtype, (2, 80))
    for length in range(1, 80, 3):
        y = canaries(dtype, (2, length))
        check(x, x[:, :length], y, y, target)
        y = canaries(dtype, (2, length))
        check(x, np.broadcast_to(x[:, :1], (2, length)), y, y, target)


def test_a_box_is_filled(target):
    for value in (np.float32(-1.5), np.int8(-3), np.float64(np.pi), np.float16(0.1)):
        y = canaries(value.dtype, (5, 31))
        for box in (y, y[1:4, 2:30], y[:, ::3]):
            box_strides, start = strides(box), offset(y, box)
            args = box.shape, box_strides, box_strides, y.itemsize, 0, start
            call = strided_copy.prepare(*args, fill=value, target=target)
            assert set(call.operands) == {"out"}
            expected = canaries(value.dtype, y.shape)
            np.lib.stride_tricks.as_strided(expected.ravel()[start:], box.shape, box.strides)[...] = value
            assert run_guarded(call, y.shape, y.dtype).tobytes() == expected.tobytes()


def test_integers_fill_by_their_lowest_bytes(target):
    call = strided_copy.prepare((9,), (1,), (1,), 2, fill=-2, target=target)
    np.testing.assert_array_equal(run_guarded(call, (9,), np.int16), np.full(9, -2, np.int16))


def test_too_many_dimensions_are_refused():
    with pytest.raises(KernelError, match="too many dimensions"):
        strided_copy.prepare((2,) * 9, [3**i for i in range(9)], [5**i for i in range(9)], 4)


def test_a_transposition_for_arm_stays_in_registers():
    text = jit.compile_ir(strided_copy.build(AARCH64, "transpose", "strided", 4), AARCH64, assembly=True)
    assert text.count("\tzip") + text.count("\ttrn") + text.count("\tuzp") >= 8
