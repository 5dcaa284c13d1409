"""Blocks of transformers against torch's own layers, with the same weights."""

import pytest
import torch
from torch import nn

from mlhood.models import gpt_block, vit_block
from mlhood.models.transformers import Block

WIDTH, HEADS, TOKENS = 24, 3, 7


def torch_layer(block: Block, activation):
    """Return torch's encoder layer with the block's weights."""
    layer = nn.TransformerEncoderLayer(
        *(WIDTH, HEADS, 4 * WIDTH, 0.0, activation),
        layer_norm_eps=block.layer.norm1.eps,
        norm_first=True,
        batch_first=True,
    )
    names = {
        "attention.projections.0.weight": "self_attn.in_proj_weight",
        "attention.projections.0.bias": "self_attn.in_proj_bias",
        "attention.out.weight": "self_attn.out_proj.weight",
        "attention.out.bias": "self_attn.out_proj.bias",
        "perceptron.up.weight": "linear1.weight",
        "perceptron.up.bias": "linear1.bias",
        "perceptron.down.weight": "linear2.weight",
        "perceptron.down.bias": "linear2.bias",
    }
    layer.load_state_dict({names.get(name, name): value for name, value in block.layer.state_dict().items()})
    return layer.eval()


@pytest.mark.parametrize("causal", [False, True])
def test_a_block_is_torchs_layer(causal):
    block = gpt_block(width=WIDTH, heads=HEADS) if causal else vit_block(width=WIDTH, heads=HEADS)
    gelu = nn.GELU("tanh" if causal else "none")
    x = torch.randn(2, TOKENS, WIDTH)
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS) if causal else None
    with torch.inference_mode():
        expected = torch_layer(block, gelu)(x, src_mask=mask, is_causal=causal)
        torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)


def test_a_token_of_gpt_depends_on_those_before_only():
    block, x = gpt_block(width=WIDTH, heads=HEADS), torch.randn(1, TOKENS, WIDTH)
    changed = x.clone()
    changed[:, 4] = -x[:, 4]  # not x + 1: the normalisation of a token removes what all its elements share
    with torch.inference_mode():
        difference = (block(x) - block(changed)).abs().amax(2)[0]
    torch.testing.assert_close(difference[:4], torch.zeros(4), rtol=0, atol=1e-5)
    assert (difference[4:] > 1e-2).all()


@pytest.mark.parametrize(("build", "count"), [(vit_block, 444_864), (gpt_block, 7_087_872)])
def test_parameter_count_and_seed(build, count):
    block = build(3)
    assert sum(parameter.numel() for parameter in block.parameters()) == count
    weight, again, other = (b.state_dict()["layer.perceptron.up.weight"] for b in (block, build(3), build(4)))
    assert torch.equal(weight, again)
    assert not torch.equal(weight, other)
