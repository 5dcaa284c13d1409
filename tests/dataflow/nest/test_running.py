"""Compiled nests against NumPy and torch, with and without the microkernel."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
import torch

from mlhood.dataflow.nest import NestError, conv2d, gemm, nest
from mlhood.dataflow.nest.running import compiled
from mlhood.kernels.codegen.target import host
from mlhood.kernels.conv import pad
from mlhood.kernels.geometry import geometry

from .cases import integers

GEMM = gemm(40, 96, 50)


def ladder():
    """Schedules from tiling to the microkernel in the loop order of BLIS; the last tile of k is partial."""
    tiled = GEMM.split("k", 16, "guard").split("j", 48, names=("jc", "jr")).split("jr", 16).split("i", 4)
    ordered = tiled.reorder("jc", "k_o", "jr_o", "i_o", "k_i", "i_i", "jr_i")
    packed = ordered.pack("B", at="k_o").pack("A", at="k_o")
    return {
        "tiled": GEMM.tile("guard", i=16, k=16, j=32).reorder("k_i", "j_i").vectorise("j_i"),
        "in registers": GEMM.tile(i=4, j=16).reorder("i_o", "j_o", "k", "i_i", "j_i").unroll("i_i").vectorise("j_i"),
        "packed": packed,
        "bound": packed.bind("i_i", "jr_i", "k_i"),
        "bound, a unpacked": ordered.pack("B", at="jr_o").bind("i_i", "jr_i", "k_i"),
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
    assert traced(dot.vectorise("k_i")) == (counts.reads, counts.writes)


def traced(nest):
    """Reads and writes by array in the address trace."""
    counts = Counter()
    for chunk in nest.addresses(1 << 14):
        counts.update(zip((chunk.names[array] for array in chunk.array), chunk.write.tolist(), strict=True))
    return {name: counts[name, False] for name in nest.arrays}, {name: counts[name, True] for name in nest.arrays}


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


def test_a_convolution_by_the_microkernel_packs_windows():
    _, arrays, expected = convolution(1, (1, 3), 1)
    assert expected.shape[3] % 16 == 1
    plain = conv2d((2, 3, 11, 11), (8, 3, 3, 2), 1, (1, 3))
    assert plain.output.shape[3] == 16
    arrays["x"], expected = np.ascontiguousarray(arrays["x"][..., :-1]), expected[..., :-1]
    tiled = plain.split("f", 4).reorder("n", "oh", "f_o", "c", "kh", "kw", "f_i", "ow").pack("x", at="oh")
    bound = tiled.bind("f_i", "ow", "c", "kh", "kw")
    np.testing.assert_array_equal(bound.run(**arrays), expected)


def test_a_microkernel_reads_its_tile_once():
    """Per tile of 4 x 16, an element of A serves 16 products and one of B 4; C is loaded once per tile of k."""
    bound = ladder()["bound"]
    counts = bound.count()
    assert counts.reads["A_packed"] == counts.points // 16
    assert counts.reads["B_packed"] == counts.points // 4
    assert counts.reads["C"] == counts.writes["C"] == 4 * 40 * 96
    assert counts.reads["B"] == counts.writes["B_packed"] == 50 * 96
    assert [level.inside for level in counts.levels] == ["(all)", "jc", "k_o", "jr_o", "i_o"]
    assert traced(bound) == (counts.reads, counts.writes)


def test_a_bound_nest_prints_its_microkernel():
    lines = str(ladder()["bound"]).splitlines()
    assert [line.strip() for line in lines[-4:-1]] == [
        "for k_i in range(min(16, 50 - 16*k_o)):  # microkernel: sum",
        "for i_i in range(4):  # microkernel: rows",
        "for jr_i in range(16):  # microkernel: columns",
    ]
    assert "_microkernel(_plan.ctypes.data, 0)" in ladder()["bound"].source()


TILED = GEMM.tile(i=4, j=16).reorder("i_o", "j_o", "k", "i_i", "j_i")
PACKED = TILED.pack("B", at="j_o")
ERRORS = {
    "not innermost": (lambda: TILED.bind("i_i", "j_i", "i_o"), "innermost loops"),
    "no sum": (lambda: TILED.bind("i_i", "j_i"), "innermost loops"),
    "duplicate loop": (lambda: TILED.bind("i_i", "i_i", "k"), "innermost loops"),
    "unknown loop": (lambda: TILED.bind("i_i", "j_i", "x"), "unknown loop"),
    "roles exchanged": (lambda: PACKED.bind("k", "j_i", "i_i"), "not a matrix product"),
    "b not packed": (lambda: TILED.bind("i_i", "j_i", "k"), r"layout of B(.|\n)*loop k(.|\n)*got: 96(.|\n)*pack B"),
    "strided columns": (lambda: PACKED.bind("j_i", "i_i", "k"), "layout of C|do not fill"),
    "packed by rows": (lambda: TILED.pack("B", at="j_o", order=("j_i", "k")).bind("i_i", "j_i", "k"), "order k, j_i"),
    "packed inside": (lambda: TILED.pack("A", at="k").bind("i_i", "j_i", "k"), "packed inside the microkernel"),
    "unrolled": (lambda: PACKED.unroll("i_i").bind("i_i", "j_i", "k"), "by itself"),
    "bound twice": (lambda: PACKED.bind("i_i", "j_i", "k").bind("i_i", "j_i", "k"), "already bound"),
    "split when bound": (lambda: PACKED.bind("i_i", "j_i", "k").split("i_o", 2), "a microkernel is bound"),
    "unrolled when bound": (lambda: PACKED.bind("i_i", "j_i", "k").unroll("i_i"), "already bound"),
    "packed when bound": (lambda: PACKED.bind("i_i", "j_i", "k").pack("A"), "pack first, bind last"),
    "too large": (lambda: GEMM.pack("B").bind("i", "j", "k"), "too large for registers"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_invalid_binding_is_rejected(case):
    step, message = ERRORS[case]
    with pytest.raises(NestError, match=message):
        step()


def test_a_partial_tile_is_rejected():
    partial = gemm(42, 96, 50).split("i", 4, "guard").split("j", 16).reorder("i_o", "j_o", "k", "i_i", "j_i")
    with pytest.raises(NestError, match="full tiles"):
        partial.pack("B", at="j_o").bind("i_i", "j_i", "k")


def test_columns_that_do_not_fill_vectors_are_rejected():
    lanes = host().lanes
    narrow = gemm(8, 3 * lanes // 2, 8).split("i", 4).reorder("i_o", "k", "i_i", "j").pack("B")
    with pytest.raises(NestError, match=f"a multiple of {lanes}"):
        narrow.bind("i_i", "j", "k")
