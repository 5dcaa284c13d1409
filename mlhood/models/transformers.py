"""Transformers with random weights: GPT-2, BERT, ViT, Llama's blocks and Whisper's encoder, by default full size.

The decoders take the keys and values of earlier tokens as inputs and return them with those of the new ones appended.

Sources: A. Radford et al., "Language models are unsupervised multitask learners", 2019; J. Devlin et al., "BERT",
NAACL 2019; A. Dosovitskiy et al., "An image is worth 16 x 16 words", ICLR 2021; H. Touvron et al., "Llama 2", 2023;
A. Radford et al., "Robust speech recognition via large-scale weak supervision", 2022; H. Touvron et
al., "Training data-efficient image transformers", ICML 2021, table 1 (DeiT-Ti, the width of `vit_block`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

Cache = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Config:
    """The shape of a stack of layers.

    Args:
        layers: Number of layers.
        width: Length of a token's vector.
        heads: Number of heads of the queries.
        groups: Number of heads of the keys and values; `heads` by default.
        hidden: Width of the perceptron; 4 `width` by default.
        norm: Where each half of a layer is normalised, "pre" or "post".
        packed: Whether one product computes queries, keys and values.
        llama: Whether the layers have RMSNorm, rotary positions, SwiGLU, and no biases.
        gelu: GELU's approximation, "none" or "tanh".
    """

    layers: int
    width: int
    heads: int
    groups: int = 0
    hidden: int = 0
    norm: str = "pre"
    packed: bool = False
    llama: bool = False
    gelu: str = "none"

    def normalization(self) -> nn.Module:
        """Build a normalisation of the tokens' vectors."""
        return nn.RMSNorm(self.width, 1e-5) if self.llama else nn.LayerNorm(self.width, 1e-5)


def rotate(x: torch.Tensor, past: int) -> torch.Tensor:
    """Return x [N, heads, T, size] with pairs of elements turned by angles that grow with the position.

    J. Su et al., "RoFormer", 2021, equation 34; the pairs are element i and i + size / 2.

    Args:
        x: Queries or keys.
        past: The position of the first one.
    """
    size = x.shape[3]
    frequencies = 1e4 ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.outer(torch.arange(past, past + x.shape[2], dtype=torch.float32), frequencies).repeat(1, 2)
    first, second = x.chunk(2, 3)
    return x * angles.cos() + torch.cat([-second, first], 3) * angles.sin()


class SelfAttention(nn.Module):
    """Multi-head self-attention by `scaled_dot_product_attention`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        size, bias = config.width // config.heads, not config.llama
        self.heads, self.groups, self.size, self.rotary = (
            config.heads,
            config.groups or config.heads,
            size,
            config.llama,
        )
        self.widths = [config.width, self.groups * size, self.groups * size]
        outputs = [sum(self.widths)] if config.packed else self.widths
        self.projections = nn.ModuleList(nn.Linear(config.width, width, bias=bias) for width in outputs)
        self.out = nn.Linear(config.width, config.width, bias=bias)

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, past: Cache | None = None, causal: bool = False
    ) -> tuple[torch.Tensor, Cache]:
        """Return the projected attention and all keys and values.

        Args:
            x: float32 [N, T, width].
            mask: True where a query sees a key, or float32 to add; broadcast to [N, heads, T, P + T].
            past: Keys and values of P earlier tokens, float32 [N, groups, P, size] each.
            causal: Whether a token sees only itself and those before it.
        """
        n, t, width = x.shape
        parts = [project(x) for project in self.projections]
        parts = parts[0].split(self.widths, 2) if len(parts) == 1 else parts
        q, k, v = (part.view(n, t, -1, self.size).transpose(1, 2) for part in parts)
        length = 0 if past is None else past[0].shape[2]
        if self.rotary:
            q, k = rotate(q, length), rotate(k, length)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            if causal and t > 1:
                keys = torch.arange(length + t, device=x.device)
                mask = keys[None, :] <= keys[length:, None]
        present = k, v
        if self.groups != self.heads:
            k, v = (self._repeat(each) for each in present)
        is_causal = causal and past is None
        y = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        return self.out(y.transpose(1, 2).reshape(n, t, width)), present

    def _repeat(self, x: torch.Tensor) -> torch.Tensor:
        """Repeat each group for its heads: [N, groups, S, size] -> [N, heads, S, size]."""
        n, groups, length, size = x.shape
        repeated = x[:, :, None].expand(n, groups, self.heads // groups, length, size)
        return repeated.reshape(n, self.heads, length, size)


class Perceptron(nn.Module):
    """Two products with GELU in between, or SwiGLU (N. Shazeer, 2020): [N, T, width] -> [N, T, width]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, bias = config.hidden or 4 * config.width, not config.llama
        self.up, self.down = nn.Linear(config.width, hidden, bias=bias), nn.Linear(hidden, config.width, bias=bias)
        self.gate = nn.Linear(config.width, hidden, bias=bias) if config.llama else None
        self.gelu = nn.GELU(config.gelu)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the perceptron to each token."""
        y = self.up(x)
        return self.down(self.gelu(y) if self.gate is None else functional.silu(self.gate(x)) * y)


class TransformerLayer(nn.Module):
    """Attention and a perceptron, each added to its input: [N, T, width] -> [N, T, width], and the cache."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.norm2 = config.normalization(), config.normalization()
        self.attention, self.perceptron, self.pre = SelfAttention(config), Perceptron(config), config.norm == "pre"

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor | None = None, past: Cache | None = None, causal: bool = False
    ) -> tuple[torch.Tensor, Cache]:
        """Compute a layer; the arguments are those of `SelfAttention`."""
        y, present = self.attention(self.norm1(x) if self.pre else x, mask, past, causal)
        x = x + y if self.pre else self.norm1(x + y)
        return (x + self.perceptron(self.norm2(x)) if self.pre else self.norm2(x + self.perceptron(x))), present


class Block(nn.Module):
    """A layer alone, without a cache, with random weights: [N, T, width] -> [N, T, width].

    Args:
        config: Of the layer.
        causal: Whether a token attends only to itself and to those before.
        seed: Of the weights; the state of torch's generator is left as it was.
    """

    def __init__(self, config: Config, causal: bool, seed: int = 0) -> None:
        super().__init__()
        self.causal = causal
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layer = TransformerLayer(config)
            for name, parameter in self.layer.named_parameters():
                if "norm" in name:  # as after training, the two differ
                    nn.init.normal_(parameter, float(name.endswith("weight")), 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the layer."""
        return self.layer(x, causal=self.causal)[0]


def _embedding(count: int, config: Config) -> nn.Embedding:
    embedding = nn.Embedding(count, config.width)
    nn.init.normal_(embedding.weight, std=0.02)  # as GPT-2's and BERT's
    return embedding


class Decoder(nn.Module):
    """A causal language model.

    Args:
        config: Of its layers.
        vocabulary: Number of words, int64 inputs; 0 if the inputs and results are vectors.
        length: The largest number of tokens, for learned positions.
    """

    def __init__(self, config: Config, vocabulary: int = 0, length: int = 0) -> None:
        super().__init__()
        self.config = config
        self.words = _embedding(vocabulary, config) if vocabulary else None
        self.positions = _embedding(length, config) if vocabulary else None
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))
        self.norm = config.normalization()

    def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits [N, T, vocabulary], or vectors, and the cache with the new tokens.

        Args:
            tokens: int64 [N, T], or float32 [N, T, width].
            past: Keys and values of P earlier tokens, layer by layer, float32 [N, groups, P, size]; or nothing.
        """
        x = tokens
        if self.words is not None and self.positions is not None:
            first = past[0].shape[2] if past else 0
            positions = torch.arange(first, first + tokens.shape[1], device=tokens.device)
            x = self.words(tokens) + self.positions(positions)
        caches = []
        for i, layer in enumerate(self.layers):
            x, present = layer(x, past=(past[2 * i], past[2 * i + 1]) if past else None, causal=True)
            caches += present
        x = self.norm(x)
        return (x if self.words is None else x @ self.words.weight.T), *caches

    def example(self, batch: int, tokens: int, past: int = 0) -> dict[str, torch.Tensor]:
        """Return random inputs of `forward` by name; with `past` tokens in the cache, or without one."""
        config, draw = self.config, torch.Generator().manual_seed(0)
        if self.words is None:
            inputs = {"tokens": torch.randn(batch, tokens, config.width, generator=draw)}
        else:
            inputs = {"tokens": torch.randint(self.words.num_embeddings, (batch, tokens), generator=draw)}
        shape = batch, config.groups or config.heads, past, config.width // config.heads
        names = [f"past_{i}_{kind}" for i in range(config.layers) for kind in ("key", "value")] if past else []
        return inputs | {name: torch.randn(shape, generator=draw) for name in names}


class Bert(nn.Module):
    """BERT's encoder of int64 words [N, T], and int64 [N, T] that is 0 for padding: float32 [N, T, width]."""

    def __init__(self, config: Config, vocabulary: int, length: int) -> None:
        super().__init__()
        self.words, self.positions = _embedding(vocabulary, config), _embedding(length, config)
        self.norm = config.normalization()
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the vectors of the tokens."""
        x = self.norm(self.words(tokens) + self.positions.weight[: tokens.shape[1]])
        for layer in self.layers:
            x, _ = layer(x, mask[:, None, None, :] != 0)
        return x

    def example(self, batch: int, tokens: int, past: int = 0) -> dict[str, torch.Tensor]:
        """Return random inputs of `forward` by name: each text is one token shorter than the one before it."""
        draw = torch.Generator().manual_seed(past)
        words = torch.randint(self.words.num_embeddings, (batch, tokens), generator=draw)
        lengths = tokens - torch.arange(batch)
        return {"tokens": words, "mask": (torch.arange(tokens)[None] < lengths[:, None]).long()}


class VisionTransformer(nn.Module):
    """ViT: float32 [N, 3, size, size] -> logits [N, classes]."""

    def __init__(self, config: Config, size: int, patch: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.width, patch, patch)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, config.width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, config.width))
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))
        self.norm, self.head = config.normalization(), nn.Linear(config.width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(self.norm(x)[:, 0])

    def example(self, batch: int, tokens: int, past: int = 0) -> dict[str, torch.Tensor]:
        """Return random inputs of `forward` by name."""
        draw, size = torch.Generator().manual_seed(past), round((tokens - 1) ** 0.5) * self.patches.kernel_size[0]
        return {"image": torch.randn(batch, 3, size, size, generator=draw)}


class WhisperEncoder(nn.Module):
    """Whisper's encoder: a mel spectrogram float32 [N, 80, 2 length] -> float32 [N, length, width]."""

    def __init__(self, config: Config, length: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(80, config.width, 3, padding=1)
        self.conv2 = nn.Conv1d(config.width, config.width, 3, stride=2, padding=1)
        half = config.width // 2
        angles = torch.arange(length)[:, None] * torch.exp(-math.log(1e4) / (half - 1) * torch.arange(half))
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], 1), persistent=False)
        self.positions: torch.Tensor
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))
        self.norm = config.normalization()

    def forward(self, spectrogram: torch.Tensor) -> torch.Tensor:
        """Return the vectors of the frames."""
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(spectrogram))))
        x = x.transpose(1, 2) + self.positions
        for layer in self.layers:
            x, _ = layer(x)
        return self.norm(x)

    def example(self, batch: int, tokens: int, past: int = 0) -> dict[str, torch.Tensor]:
        """Return random inputs of `forward` by name."""
        return {"spectrogram": torch.randn(batch, 80, 2 * tokens, generator=torch.Generator().manual_seed(past))}


GPT2 = Config(12, 768, 12, packed=True, gelu="tanh")
BERT = Config(12, 768, 12, norm="post")
VIT = Config(12, 768, 12, packed=True)
LLAMA = Config(1, 1024, 8, groups=2, hidden=2816, llama=True)
WHISPER = Config(4, 384, 6)
VIT_TOKENS, GPT_TOKENS = 197, 128  # of the blocks


def gpt2(config: Config = GPT2, vocabulary: int = 50_257, length: int = 2048) -> Decoder:
    """Build GPT-2 small: 12 layers of 768, 12 heads; twice its 1,024 positions, for a step after 1,024."""
    return Decoder(config, vocabulary, length)


def bert(config: Config = BERT, vocabulary: int = 30_522, length: int = 512) -> Bert:
    """Build BERT-base: 12 layers of 768, 12 heads."""
    return Bert(config, vocabulary, length)


def vit(config: Config = VIT, size: int = 224, patch: int = 16, classes: int = 1000) -> VisionTransformer:
    """Build ViT-B/16: 12 layers of 768, 12 heads, 197 tokens."""
    return VisionTransformer(config, size, patch, classes)


def llama(config: Config = LLAMA) -> Decoder:
    """Build one of Llama's blocks: 1,024 wide, 8 heads of queries, 2 of keys and values; of vectors, without words."""
    return Decoder(config)


def whisper(config: Config = WHISPER, length: int = 1500) -> WhisperEncoder:
    """Build the encoder of Whisper-tiny: 4 layers of 384, 6 heads, 30 seconds of sound."""
    return WhisperEncoder(config, length)


def vit_block(seed: int = 0, *, width: int = 192, heads: int = 3) -> Block:
    """Build a block of ViT-tiny, for 196 patches and a class token: 444,864 parameters."""
    return Block(Config(1, width, heads, packed=True), causal=False, seed=seed)


def gpt_block(seed: int = 0, *, width: int = 768, heads: int = 12) -> Block:
    """Build a block of GPT-2, causal: 7,087,872 parameters."""
    return Block(Config(1, width, heads, packed=True, gelu="tanh"), causal=True, seed=seed)
