"""Attention of few and of many queries against torch in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mlhood.errors import KernelError
from mlhood.kernels import attention
from mlhood.kernels.attention import KEYS, AttentionSizes, Mask
from mlhood.kernels.native import run
from tests.kernels.guards import Guarded

SIZES = [
    AttentionSizes(2, 1, 1, 16, 16),
    AttentionSizes(4, 1, 7, 64, 32, shared=2),
    AttentionSizes(2, 3, 16, 16, 48),
    AttentionSizes(1, 2, 1025, 64, 64),
    AttentionSizes(2, 9, 1, 16, 16),
    AttentionSizes(2, 1, 7, 16, 32),
    AttentionSizes(2, 10, 7, 16, 32),
    AttentionSizes(6, 50, 43, 20, 9, shared=3),
    AttentionSizes(2, 70, KEYS + 1, 64, 64),
    AttentionSizes(1, 100, 2 * KEYS, 8, 130),
]
# axes of [examples, heads of an example, queries] along which a mask differs
MASKS = {"none": None, "shared": (0, 0, 0), "padding": (1, 0, 0), "by query": (0, 0, 1), "by head": (0, 1, 1)}


def drawn(sizes):
    draw, groups = np.random.default_rng(sizes.keys), sizes.heads // sizes.shared
    shapes = {"q": (sizes.heads, sizes.queries, sizes.depth)}
    shapes |= {"k": (groups, sizes.keys, sizes.depth), "v": (groups, sizes.keys, sizes.width)}
    return {name: 2 * draw.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def computed(sizes, arrays, scale, target, **options):
    """Return the result, which must be the same bits for 1 and 2 threads, between guards."""
    results = []
    for threads, shift in ((1, 0), (2, 1)):
        out = Guarded((sizes.heads, sizes.queries, sizes.width), shift=shift)
        held = {name: Guarded(x.shape, x, shift) for name, x in arrays.items()} | {"out": out}
        for call in attention.attend(sizes, scale, target=target, **options):
            held |= {name: Guarded((size // 4,)) for name, size in call.workspace.items()}
            run(replace(call, workspace={}), threads, **{name: held[name].array for name in call.operands})
        for each in held.values():
            each.check()
        results.append(out.array.copy())
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_is_that_of_torch(sizes, mask, causal, target):
    arrays, differs, layout = drawn(sizes), MASKS[mask], None
    given = torch.zeros(1, 1, sizes.keys, dtype=torch.float64)
    if differs is not None:
        heads = 2 if sizes.heads % 2 == 0 else 1
        lengths = (sizes.heads // heads, heads, sizes.queries)
        shape = (*(n if differ else 1 for n, differ in zip(lengths, differs, strict=True)), sizes.keys)
        draw = np.random.default_rng(1)
        array = np.where(draw.random(shape) < 0.3, -np.inf, draw.standard_normal(shape)).astype(np.float32)
        array[..., 0] = 0  # each query sees a key
        strides = [stride // 4 * differ for stride, differ in zip(array.strides, differs, strict=False)]
        layout, arrays["mask"] = Mask(heads, *strides), array
        given = torch.from_numpy(array).expand(*lengths, -1).reshape(-1, sizes.queries, sizes.keys)
    hidden = torch.from_numpy(np.triu(np.full((sizes.queries, sizes.keys), -np.inf), 1)) if causal else 0.0
    q, k, v = (torch.from_numpy(arrays[name]).double() for name in "qkv")
    k, v = (x[:, : sizes.keys].repeat_interleave(sizes.shared, 0) for x in (k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, given + hidden, scale=0.2)
    y = computed(sizes, arrays, 0.2, target, mask=layout, causal=causal)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("queries", [2, 20])
def test_a_query_that_sees_nothing_gets_0(queries, target):
    sizes = AttentionSizes(1, queries, 20, 16, 16)
    mask = np.zeros((queries, 20), np.float32)
    mask[1] = -np.inf
    y = computed(sizes, drawn(sizes) | {"mask": mask}, 1.0, target, mask=Mask(query=20))
    assert np.abs(np.delete(y, 1, 1)).min() > 0
    assert not y[0, 1].any()


def test_empty_vectors_are_refused():
    with pytest.raises(KernelError, match="empty vectors"):
        attention.attend(AttentionSizes(1, 1, 4, 0, 16), 1.0)
