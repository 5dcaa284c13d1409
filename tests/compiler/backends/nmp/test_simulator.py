"""The simulator: integers as torch and NumPy compute them, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.isa.assembly import assemble
from mlhood.compiler.backends.nmp.simulator import simulate
from mlhood.errors import CompilerError

TENSORS = """
.program "by hand"
.tensor {{"name": "x", "kind": "input", "element": "{element}", "shape": [{count}], "address": 0}}
.tensor {{"name": "z", "kind": "input", "element": "{element}", "shape": [{count}], "address": 65536}}
.tensor {{"name": "y", "kind": "output", "element": "{element}", "shape": [{results}], "address": 131072}}
.tensor {{"name": "s", "kind": "scratch", "element": "{element}", "shape": [{count}], "address": 196608}}
.layer ["all", ""]
"""


ELEMENTS = st.sampled_from(["int8", "int16"])


def run(body: str, x: np.ndarray, results: int | None = None, z: np.ndarray | None = None) -> np.ndarray:
    head = TENSORS.format(element=x.dtype.name, count=x.size, results=results or x.size)
    z = np.zeros_like(x) if z is None else z
    return simulate(assemble(head + body), {"x": x.ravel(), "z": z.ravel()})["y"]


def halves_up(total: np.ndarray, shift: int, low: int, high: int) -> np.ndarray:
    """Round by floor(t + 1/2), in floating point with enough bits."""
    return np.clip(np.floor(total.astype(np.longdouble) / 2.0**shift + 0.5), low, high).astype(np.int64)


@settings(max_examples=40)
@given(ELEMENTS, st.integers(-3, 12), st.integers(1, 60), st.integers(0, 2**31))
def test_sums_and_rescaling_round_ties_up(element, shift, count, seed):
    limits, rng = np.iinfo(element), np.random.default_rng(seed)
    x, z = (rng.integers(limits.min, limits.max, count, element, endpoint=True) for _ in range(2))
    bytes_, size = x.nbytes, x.itemsize
    scale = f"shift={shift} low={limits.min} high={limits.max}"
    body = f"""
load t0.0 memory=b0+0 dram=0 run={bytes_}
load t0.0 memory=b1+0 dram=0x10000 run={bytes_}
wait t0.0
add t0.0 a=b0+0 b=b1+0 y=b2+0 element={size} a_bytes={size} b_bytes={size} count={count} a_shift=2 b_shift=0 {scale}
rescale t0.0 x=b2+0 y=b3+0 element={size} count={count} shift=1 low=-5 high=100
store t0.0 memory=b3+0 dram=0x20000 run={bytes_}
barrier
"""
    total = halves_up(4 * x.astype(np.int64) + z, shift, limits.min, limits.max)
    np.testing.assert_array_equal(run(body, x, z=z), halves_up(total, 1, -5, 100))


@settings(max_examples=30)
@given(
    st.sampled_from(["int8", "int16"]), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.integers(0, 2**31)
)
def test_pools_are_torchs(element, kernel, stride, pad, seed):
    rng, size = np.random.default_rng(seed), np.dtype(element).itemsize
    height, width, pad = int(rng.integers(3, 9)), int(rng.integers(3, 9)), min(pad, kernel // 2)
    limits = np.iinfo(element)
    x = rng.integers(limits.min, limits.max, (2, height, width), element, endpoint=True)
    images = torch.tensor(x.astype(np.float64))
    want = torch.nn.functional.max_pool2d(images, kernel, stride, pad).numpy()
    sizes = f"channels=2 height={height} width={width} kernel_height={kernel} kernel_width={kernel}"
    sizes += f" stride_height={stride} stride_width={stride} dilation_height=1 dilation_width=1"
    sizes += f" pad_top={pad} pad_left={pad}"
    sizes += f" out_height={want.shape[1]} out_width={want.shape[2]} shift=0 low={limits.min} high={limits.max}"
    body = f"""
load t0.0 memory=b0+0 dram=0 run={x.nbytes}
wait t0.0
pool t0.0 x=b0+0 y=b1+0 element={size} {sizes} kind=max multiplier=1
store t0.0 memory=b1+0 dram=0x20000 run={want.size * size}
barrier
"""
    np.testing.assert_array_equal(run(body, x, want.size), want.astype(np.int64).ravel())


DENSE = "dense t0.0 x=b0+0 w=b1+0 y=b2+0 accumulators=b2+0 element=1 rows=1 depth={depth} filters=1"


def test_accumulators_of_bytes_wrap_around_at_32_bits():
    # the bias is 2^31 - 1, and a product of 1 makes it -2^31
    x = np.array([1, 0, 0, 0, 0, 0, 0, 0], np.int8)
    z = np.array([-1, -1, -1, 127, 1, 0, 0, 0], np.int8)
    body = f"""
load t0.0 memory=b0+0 dram=0 run=8
load t0.0 memory=b1+0 dram=0x10000 run=8
wait t0.0
{DENSE.format(depth=4)} first=true last=true shift=24 low=-128 high=127
store t0.0 memory=b2+0 dram=0x20000 run=1
barrier
"""
    assert run(body, x, 1, z).tolist() == [-128]


def test_sums_of_the_most_negative_bytes_are_exact():
    x = np.full(2048, -128, np.int8)
    w = np.full(2048, -128, np.int8)
    w[:4] = 0  # the bias
    body = f"""
load t0.0 memory=b0+0 dram=0 run=2048
load t0.0 memory=b1+0 dram=0x10000 run=2048
wait t0.0
{DENSE.format(depth=2044)} first=true last=true shift=19 low=-128 high=127
store t0.0 memory=b2+0 dram=0x20000 run=1
barrier
"""
    assert run(body, x, 1, w).tolist() == [(2044 * 128 * 128 + 2**18) >> 19]


COPY = """
load t0.0 memory=b0+0 dram=0 run=64
wait t0.0
rescale t0.0 x=b0+0 y=b1+0 element=1 count=64 shift=0 low=-128 high=127
store t0.0 memory=b1+0 dram=0x20000 run=64
barrier
"""
X = np.arange(64, dtype=np.int8)


def test_a_copy_is_a_copy():
    np.testing.assert_array_equal(run(COPY, X), X)


@pytest.mark.parametrize(
    ("before", "after", "message", "where"),
    [
        ("wait t0.0\n", "", "missing synchronisation: a load", "b0+0x0000"),
        ("run=64\nwait", "run=63\nwait", "never written", "b0+0x003f"),
        ("y=b1+0 ", "y=b1+0x1fff ", "blob overflow", "b1+0x1fff"),
        ("y=b1+0 ", "y=b4+0 ", "blob overflow", "b4+0x0000"),
        ("dram=0x20000", "dram=0x0", "overwritten", "'x'"),
        ("dram=0x20000", "dram=0x20020", "outside of all tensors", "DRAM"),
        ("dram=0 ", "dram=0x30000 ", "never written", "'s'"),
        ("store t0.0 memory=b1+0 dram=0x20000 run=64\n", "", "an output is never written", "'y'"),
        ("load t0.0", "load t9.0", "no such tilelet", "t9.0"),
        ("store t0.0", "store t0.0-1", "several tilelets", "t0.0-1"),
        ("element=1", "element=3", "invalid size of an element", "instruction 2"),
        ("low=-128", "low=-129", "invalid limits", "instruction 2"),
        ("count=64", "count=0", "invalid count", "instruction 2"),
        (
            "barrier",
            "load t0.1 memory=b0+0 dram=0x20000 run=64\nbarrier",
            "missing synchronisation: tilelet t0.0 has stored",
            "put a barrier",
        ),
        (
            "barrier",
            "rescale t0.0 x=b0+0 y=b1+0 element=1 count=64 shift=0 low=-128 high=127\nbarrier",
            "missing synchronisation: a store",
            "b1+0x0000",
        ),
        (
            "wait t0.0\n",
            "load t0.0 memory=b2+0 dram=0 run=64\nload t0.0 memory=b3+0 dram=0 run=64\nwait t0.0 outstanding=3\n",
            "missing synchronisation: a load",
            "put a wait",
        ),
    ],
)
def test_what_hardware_would_get_wrong_is_refused(before, after, message, where):
    assert before in COPY
    with pytest.raises(CompilerError, match=message) as error:
        run(COPY.replace(before, after, 1), X)
    assert where in str(error.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # the latest two transfers may be outstanding: the one that is needed is complete
        (
            "wait t0.0\n",
            "load t0.0 memory=b2+0 dram=0 run=64\nload t0.0 memory=b3+0 dram=0 run=64\nwait t0.0 outstanding=2\n",
        ),
        # a tilelet's own stores and loads are served in program order
        ("barrier", "load t0.0 memory=b0+0 dram=0x20000 run=64\nbarrier"),
        # after a barrier, others may read it
        ("barrier", "barrier\nload t0.1 memory=b0+0 dram=0x20000 run=64\nbarrier"),
        # to read what a store reads is no race
        ("barrier", "rescale t0.0 x=b1+0 y=b2+0 element=1 count=64 shift=0 low=-128 high=127\nbarrier"),
    ],
)
def test_what_is_in_order_runs(before, after):
    np.testing.assert_array_equal(run(COPY.replace(before, after, 1), X), X)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": X}, "an input is missing"),
        ({"x": X, "z": X.astype(np.int16)}, "another type"),
        ({"x": X[:3], "z": X}, "another type"),
        ({"x": X, "z": X, "w": X}, "unknown input"),
    ],
)
def test_inputs_are_checked(inputs, message):
    with pytest.raises(CompilerError, match=message):
        simulate(assemble(TENSORS.format(element="int8", count=64, results=64) + COPY), inputs)
