"""Transformers for text and images."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn
from torch.nn import functional

from mlhood.models.transformers import Block, Config
from tests.tools.compiler.architectures.architecture import Architecture, Input, image, tokens

WIDTH, HEADS = 16, 2
BLOCK = Config(1, WIDTH, HEADS, hidden=32, packed=True, gelu="tanh")


def encoder() -> nn.Module:
    """Build torch's own encoder of two layers (Vaswani et al., NeurIPS 2017)."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class EncoderDecoder(nn.Module):
    """torch's own transformer, with a causal mask in the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Transformer(WIDTH, HEADS, 1, 1, 32, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Map [N, 6, width] and [N, 4, width] to [N, 4, width]."""
        return self.layer(source, target, tgt_mask=self.mask)


class GPT(nn.Module):
    """Causal blocks on embedded tokens and positions; the embedding gives the logits (Radford et al. 2019)."""

    def __init__(self, vocabulary: int = 50, length: int = 10) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.Sequential(*(Block(BLOCK, causal=True) for _ in range(2)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids [N, T] to logits [N, T, vocabulary]."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        y = self.norm(self.blocks(self.words(ids) + self.positions(positions)))
        return y @ self.words.weight.T


class RMSNorm(nn.Module):
    """x over the root of its mean square, times a weight (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last axis."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Llama(nn.Module):
    """A decoder layer: rotary positions, grouped queries, SwiGLU (Touvron et al. 2023; Su et al. 2021)."""

    def __init__(self, vocabulary: int = 50, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, WIDTH // heads
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.norm1, self.norm2, self.norm3 = RMSNorm(WIDTH), RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = nn.Linear(WIDTH, 32, bias=False), nn.Linear(WIDTH, 32, bias=False)
        self.down, self.head = nn.Linear(32, WIDTH, bias=False), nn.Linear(WIDTH, vocabulary, bias=False)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn pairs of elements of [N, heads, T, size] by angles that grow with the position."""
        frequencies = 1e4 ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float32), frequencies).repeat(1, 2)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Return causal attention, in which several heads share keys and values."""
        n, t, _ = x.shape
        q = self.rotate(self.q(x).view(n, t, self.heads, self.size).transpose(1, 2))
        k = self.rotate(self.k(x).view(n, t, self.groups, self.size).transpose(1, 2))
        v = self.v(x).view(n, t, self.groups, self.size).transpose(1, 2)
        k, v = (self.repeat(y) for y in (k, v))
        mask = torch.full((t, t), -math.inf).triu(1)
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.size) + mask, -1)
        return self.o((weights @ v).transpose(1, 2).reshape(n, t, WIDTH))

    def repeat(self, x: torch.Tensor) -> torch.Tensor:
        """Repeat each group for its heads: [N, groups, T, size] -> [N, heads, T, size]."""
        n, groups, t, size = x.shape
        times = self.heads // groups
        return x[:, :, None].expand(n, groups, times, t, size).reshape(n, groups * times, t, size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids [N, T] to logits [N, T, vocabulary]."""
        x = self.words(ids)
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        x = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return self.head(self.norm3(x))


class BERT(nn.Module):
    """Embeddings of words, positions and segments; attention masked where there is padding (Devlin et al. 2019)."""

    def __init__(self, vocabulary: int = 50, length: int = 10) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH, padding_idx=0)
        self.positions, self.segments = nn.Embedding(length, WIDTH), nn.Embedding(2, WIDTH)
        self.norm, self.q, self.k, self.v = nn.LayerNorm(WIDTH), *(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.hidden, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norm1, self.norm2, self.pool = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map ids and mask [N, T], 1 for words, to states [N, T, width] and the pooled first one, [N, width]."""
        n, t = ids.shape
        positions = torch.arange(t).unsqueeze(0).expand(n, t)
        x = self.norm(self.words(ids) + self.positions(positions) + self.segments(torch.zeros_like(ids)))
        q, k, v = (f(x).view(n, t, HEADS, -1).permute(0, 2, 1, 3) for f in (self.q, self.k, self.v))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + bias, -1) @ v
        x = self.norm1(x + y.permute(0, 2, 1, 3).contiguous().view(n, t, WIDTH))
        x = self.norm2(x + self.last(functional.gelu(self.hidden(x))))
        return x, torch.tanh(self.pool(x[:, 0]))


class ViT(nn.Module):
    """Patches and a class token through blocks (Dosovitskiy et al., ICLR 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, WIDTH, 8, 8), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 17, WIDTH))
        self.blocks = nn.Sequential(*(Block(replace(BLOCK, gelu="none"), causal=False) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, 32, 32] to logits [N, 10]."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Swin(nn.Module):
    """Attention in shifted windows with a relative position bias (Liu et al., ICCV 2021)."""

    index: torch.Tensor

    def __init__(self, window: int = 4) -> None:
        super().__init__()
        self.window, self.patches = window, nn.Conv2d(3, WIDTH, 4, 4)
        self.qkv, self.last = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, HEADS))
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        offsets = grid[:, :, None] - grid[:, None, :] + window - 1
        self.register_buffer("index", offsets[0] * (2 * window - 1) + offsets[1])
        self.norm, self.merge, self.head = nn.LayerNorm(WIDTH), nn.Linear(4 * WIDTH, 32), nn.Linear(32, 10)

    def attention(self, x: torch.Tensor, shift: int) -> torch.Tensor:
        """Attend within windows of [N, H, W, width], rolled by a shift."""
        n, h, w, c = x.shape
        m = self.window
        x = torch.roll(x, (-shift, -shift), (1, 2)) if shift else x
        x = x.view(n, h // m, m, w // m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, m * m, c)
        q, k, v = self.qkv(x).reshape(-1, m * m, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.index.view(-1)].view(m * m, m * m, -1).permute(2, 0, 1)
        y = torch.softmax(q * (c // HEADS) ** -0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0), -1) @ v
        y = self.last(y.transpose(1, 2).reshape(-1, m * m, c))
        y = y.view(n, h // m, w // m, m, m, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(y, (shift, shift), (1, 2)) if shift else y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, 32, 32] to logits [N, 10]."""
        x = self.patches(x).permute(0, 2, 3, 1)
        for shift in (0, self.window // 2):
            x = x + self.attention(self.norm(x), shift)
        corners = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        return self.head(self.merge(torch.cat(corners, -1)).mean((1, 2)))


class T5(nn.Module):
    """Attention with a bias for buckets of relative positions, no scale (Raffel et al., JMLR 2020)."""

    def __init__(self, vocabulary: int = 50) -> None:
        super().__init__()
        self.words, self.bias = nn.Embedding(vocabulary, WIDTH), nn.Embedding(8, HEADS)
        self.qkv, self.last = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm = RMSNorm(WIDTH)

    def buckets(self, length: int) -> torch.Tensor:
        """Return the bucket of each pair of positions, [T, T]: exact when near, logarithmic when far."""
        positions = torch.arange(length)
        distance = positions[None, :] - positions[:, None]
        far = distance.abs()
        large = 2 + (torch.log(far.float().clamp(min=1) / 2) / math.log(8 / 2) * 2).long()
        return (distance > 0).long() * 4 + torch.where(far < 2, far, large.clamp(max=3).clamp(min=0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids [N, T] to states [N, T, width]."""
        n, t = ids.shape
        x = self.words(ids)
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias(self.buckets(t)).permute(2, 0, 1).unsqueeze(0)
        y = torch.softmax(torch.einsum("nhqd,nhkd->nhqk", q, k) + bias, -1) @ v
        return x + self.last(y.transpose(1, 2).flatten(2))


_PAIR = (Input(("batch", 6, WIDTH), name="source"), Input(("batch", 4, WIDTH), name="target"))

ARCHITECTURES = (
    Architecture("transformer", EncoderDecoder, _PAIR),
    Architecture("gpt", GPT, tokens()),
    Architecture("llama", Llama, tokens()),
    Architecture("bert", BERT, (*tokens(), Input(("batch", 10), 2, "mask"))),
    Architecture("vit", ViT, image()),
    Architecture("swin", Swin, image()),
    Architecture("t5", T5, tokens()),
)
