"""Compiled nests against NumPy and torch."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from mlhood.dataflow.nest import conv2d, gemm, nest
from mlhood.dataflow.nest.program import compiled
from mlhood.kernels.conv import pad
from mlhood.kernels.geometry import geometry

from .cases import integers

GEMM = gemm(40, 96, 50)


def ladder():
    """Schedules from tiling to packing; the last tile of k is partial."""
    tiled = GEMM.split("k", 16, "guard").split("j", 16).split("i", 4)
    return {
        "tiled": GEMM.tile("guard", i=16, k=16, j=32).reorder("k_i", "j_i").vectorise("j_i"),
        "in registers": GEMM.tile(i=4, j=16).reorder("i_o", "j_o", "k", "i_i", "j_i").unroll("i_i").vectorise("j_i"),
        "packed": tiled.reorder("k_o", "j_o", "i_o", "k_i", "i_i", "j_i").pack("B", at="k_o").pack("A", at="k_o"),
    }


@pytest.mark.parametrize("rung", ladder())
def test_a_product_equals_numpy(rung):
    arrays = integers(GEMM)
    np.testing.assert_array_equal(ladder()[rung].run(**arrays), arrays["A"] @ arrays["B"])


VECTORS = {
    "a row": (nest("y[i, j] += x[i, j]", i=3, j=37), lambda x: x),
    "a sum": (nest("y[i] += x[i, k] * w[k]", i=3, k=57), lambda x, w: x @ w),
    "a sum of one array": (nest("y[i] += x[i, k]", i=3, k=5), lambda x: x.sum(1)),
    "three factors": (nest("y[i, j] += u[j] * v[i] * w[i, j]", i=3, j=8), lambda u, v, w: u * v[:, None] * w),
    "a row from a row": (nest("y[j] += x[k, j] * w[k]", k=7, j=9), lambda x, w: w @ x),
}


@pytest.mark.parametrize("case", VECTORS)
def test_vectorised_statements(case):
    plain, expected = VECTORS[case]
    arrays = integers(plain)
    np.testing.assert_array_equal(plain.vectorise(plain.names[-1]).run(**arrays), expected(**arrays))


def test_an_unrolled_tile_stays_in_registers():
    """In optimised LLVM IR the loop of multiply-adds, too long to be unrolled, does not store."""
    tiled = gemm(16, 32, 500).tile(i=4, j=16).reorder("i_o", "j_o", "k", "i_i", "j_i").unroll("i_i").vectorise("j_i")
    tiled.run(**integers(tiled))
    (code,) = compiled(tiled).inspect_llvm().values()
    blocks = re.split(r"\n(?=[\w.]+:)", code)
    inner = [block for block in blocks if re.search(r"call .*fmuladd\.v16f32", block)]
    assert inner
    assert not any("store <16 x float>" in block for block in inner)
    assert any("store <16 x float>" in block for block in blocks)


def test_a_vector_reads_a_shared_element_once():
    dot = nest("y[i] += x[i, k] * w[k]", i=3, k=16).reorder("k", "i").split("k", 8).reorder("i", "k_o", "k_i")
    counts = dot.vectorise("k_i").count()
    assert counts.reads == {"x": 48, "w": 48, "y": 3 * 2}
    assert counts.writes["y"] == 3 * 2
    rows = nest("y[i, j] += x[i] * w[j]", i=3, j=16).vectorise("j").count()
    assert rows.reads == {"x": 3, "w": 48, "y": 48}
    assert [level.inside for level in rows.levels] == ["(all)", "i"]


def convolution(stride, padding, dilation):
    x, w = (2, 3, 11, 12), (8, 3, 3, 2)
    plain = conv2d(x, w, stride, padding, dilation)
    arrays = {"x": np.random.default_rng(1).integers(-8, 9, x).astype(np.float32), "w": integers(plain)["w"]}
    expected = torch.nn.functional.conv2d(
        *map(torch.from_numpy, arrays.values()), stride=stride, padding=padding, dilation=dilation
    )
    padded = pad(geometry(x, w, stride, padding, dilation), arrays["x"])
    return plain, arrays | {"x": padded}, expected.numpy()


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 0, 2)])
def test_a_convolution_equals_torch(stride, padding, dilation):
    plain, arrays, expected = convolution(stride, padding, dilation)
    tiled = plain.tile("guard", f=5, ow=4, c=2).reorder("n", "f_o", "c_o", "oh", "ow_o", "c_i", "kh", "kw")
    np.testing.assert_array_equal(tiled.pack("w", at="f_o").run(**arrays), expected)
