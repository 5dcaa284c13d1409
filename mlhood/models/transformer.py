"""One block of a vision transformer and one of GPT-2, with random weights: attention and a perceptron, pre-norm.

Sources: A. Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.2; A. Dosovitskiy et al., "An image is
worth 16 x 16 words", ICLR 2021, equations 2 and 3, in the width of H. Touvron et al., "Training data-efficient image
transformers", ICML 2021, table 1 (DeiT-Ti); A. Radford et al., "Language models are unsupervised multitask learners",
2019 (GPT-2, 117 million parameters).
"""

from __future__ import annotations

import math

import torch
from torch import nn

VIT_TOKENS, GPT_TOKENS = 197, 128


class Attention(nn.Module):
    """Multi-head self-attention: float32 [N, T, width] -> [N, T, width].

    Args:
        width: Length of a token's vector, a multiple of `heads`.
        heads: Number of heads.
        causal: The number of tokens T, if a token attends only to itself and to those before; None if to all.
    """

    def __init__(self, width: int, heads: int, causal: int | None = None) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        mask = None if causal is None else torch.full((causal, causal), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        self.mask: torch.Tensor | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return softmax(q k^T / sqrt(size) + mask) v of all heads, projected."""
        # [N, T, 3 width] -> [3, N, heads, T, size]
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, self.size)).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(2, 3) * self.size**-0.5
        if self.mask is not None:
            scores = scores + self.mask
        y = torch.softmax(scores, dim=3) @ v
        return self.proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm transformer block: float32 [N, T, width] -> [N, T, width].

    Args:
        width: Length of a token's vector.
        heads: Number of heads.
        hidden: Width of the perceptron.
        causal: See `Attention`.
        approximate: GELU's approximation, "none" or "tanh".
        eps: Of the layer normalisations.
    """

    def __init__(
        self, width: int, heads: int, hidden: int, causal: int | None, approximate: str, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps)
        self.attention = Attention(width, heads, causal)
        self.norm2 = nn.LayerNorm(width, eps)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the attention's result to x, then the perceptron's."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def vit_block(seed: int = 0, *, width: int = 192, heads: int = 3) -> Block:
    """Build a block of ViT-tiny, for 196 patches and a class token: 444,864 parameters.

    Args:
        seed: Of the weights; the state of torch's generator is left as it was.
        width: Length of a token's vector; the perceptron is four times as wide.
        heads: Number of heads.
    """
    return _seeded(seed, width, heads, 4 * width, None, "none", 1e-6)


def gpt_block(seed: int = 0, *, width: int = 768, heads: int = 12, tokens: int = GPT_TOKENS) -> Block:
    """Build a block of GPT-2, causal, for this number of tokens: 7,087,872 parameters.

    Args:
        seed: Of the weights; the state of torch's generator is left as it was.
        width: Length of a token's vector; the perceptron is four times as wide.
        heads: Number of heads.
        tokens: Number of tokens, T.
    """
    return _seeded(seed, width, heads, 4 * width, tokens, "tanh", 1e-5)


def _seeded(seed: int, width: int, heads: int, hidden: int, causal: int | None, gelu: str, eps: float) -> Block:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        block = Block(width, heads, hidden, causal, gelu, eps)
        for norm in (block.norm1, block.norm2):  # as after training, the two differ
            nn.init.normal_(norm.weight, 1.0, 0.1)
            nn.init.normal_(norm.bias, 0.0, 0.1)
        return block
