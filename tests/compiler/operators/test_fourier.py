"""Fourier transforms and windows against ONNX Runtime, on every target."""

import numpy as np
import pytest

from mlhood.compiler.hir.operator import infer_output_types
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.fourier import DFT, STFT
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree_single
from tests.tools.compiler.conformance import cases

LENGTH = np.array(10)


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def dft(parts, axis, length=None, **attributes):
    """Return the arguments of `single` for a DFT of opset 20."""
    length = None if length is None else np.array(length)
    inputs = {"x": numbers(3, 8, 6, parts), "length": length, "axis": np.array(axis)}
    return {"op_type": "DFT", "inputs": inputs, "constants": ["axis"] + ["length"] * (length is not None)} | attributes


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [None, 5, 11])
def test_dft(parts, axis, inverse, length):
    agree_single(**dft(parts, axis, length), attributes={"inverse": inverse})


@pytest.mark.parametrize("length", [None, 6, 7])
def test_the_first_half_of_a_transform(length):
    agree_single(**dft(1, 1, length), attributes={"onesided": 1})


@pytest.mark.parametrize("length", [None, 7, 20])
def test_a_real_inverse(length):
    case = dft(2, 1, length)
    x = case["inputs"]["x"]
    wanted = np.fft.irfft(x[..., 0] + 1j * x[..., 1], length, 1)[..., None].astype(np.float32)
    agree_single(**case, attributes={"onesided": 1, "inverse": 1}, wanted=[wanted])


@pytest.mark.parametrize("export_opset", [18, 21])
def test_dft_of_opset_17(export_opset):
    inputs = {"x": numbers(2, 8, 5, 1), "length": LENGTH}
    agree_single("DFT", inputs, opset=17, constants=["length"], export_opset=export_opset)


@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("given", ["window", "length", "both"])
def test_stft(parts, onesided, given):
    window, length = np.hanning(10).astype(np.float32), LENGTH
    inputs = {
        "x": numbers(2, 33, parts),
        "step": np.array(4),
        "window": None if given == "length" else window,
        "length": None if given == "window" else length,
    }
    constants = ["step", *(name for name in ("window", "length") if inputs[name] is not None)]
    agree_single("STFT", inputs, opset=17, constants=constants, attributes={"onesided": onesided}, atol=1e-4)


@pytest.mark.parametrize(
    "case", [case for case in cases() if case.operators in ({"DFT"}, {"STFT"})], ids=lambda c: c.name
)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_the_node_tests_pass(case, backend):
    case.run(backend=backend)


@pytest.mark.parametrize(
    ("operator", "shape", "message"),
    [
        (DFT(-1), (3, 8, 1), "the last axis holds"),
        (DFT(7), (3, 8, 1), "the axis is out of range"),
        (DFT(1), (3, 8, 3), "the shape of such numbers"),
        (DFT(1, 0), (3, 8, 1), "must be positive"),
        (DFT(1), (3, 0, 1), "must be positive"),
        (DFT(1, 2**60), (3, 8, 1), "too large"),
        (DFT(1, onesided=True), (3, 8, 2), "the shape of such numbers"),
        (DFT(1, None, True, True), (3, 8, 1), "the shape of such numbers"),
        (STFT(0, 4), (3, 8, 1), "must be positive"),
        (STFT(1, 9), (3, 8, 1), "shorter than a frame"),
        (STFT(1, 4), (3, 8, 2), "the shape of such numbers"),
        (STFT(1, 4), (8, 1), "three axes"),
    ],
)
def test_invalid_transforms(operator, shape, message):
    with pytest.raises(CompilerError, match=message):
        infer_output_types(operator, [TensorType("float32", shape)], "here")


def test_many_overlapping_frames_are_counted():
    x = TensorType("float32", (1, 2**20, 1))
    assert STFT(1, 2**19).workspace(x) > 2**38
