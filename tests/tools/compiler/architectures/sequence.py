"""Networks for series: recurrent, convolutional in one dimension, state spaces."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.tools.compiler.architectures.architecture import Architecture, Input, series
from tests.tools.compiler.architectures.blocks import conv


class Recurrent(nn.Module):
    """A recurrent network and a linear layer on its last output.

    Args:
        layer: torch's recurrent layer, which takes the batch as its first axis.
        width: Length of its output's vectors.
        embedding: Number of ids that are embedded; 0 if the inputs are vectors.
    """

    def __init__(self, layer: nn.RNNBase, width: int, embedding: int = 0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(embedding, layer.input_size) if embedding else nn.Identity()
        self.layer, self.last = layer, nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map vectors [N, T, inputs] or ids [N, T] to logits [N, 4]."""
        y, _ = self.layer(self.embedding(x))
        return self.last(y[:, -1])


class Cells(nn.Module):
    """An LSTM cell, stepped through time from zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, 4] to the last state [N, 8]."""
        h = c = x.new_zeros(x.shape[0], 8)
        for t in range(3):
            h, c = self.cell(x[:, t], (h, c))
        return h


class Seq2Seq(nn.Module):
    """An encoder and a decoder of GRUs, with attention of the decoder on the encoder (Luong et al., EMNLP 2015)."""

    def __init__(self, vocabulary: int = 50, width: int = 16) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.encoder, self.decoder = (nn.GRU(width, width, batch_first=True) for _ in range(2))
        self.attention, self.last = nn.Linear(width, width), nn.Linear(2 * width, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Map ids [N, S] and [N, T] to logits [N, T, vocabulary]."""
        memory, state = self.encoder(self.source(source))
        y, _ = self.decoder(self.target(target), state)
        weights = torch.softmax(torch.bmm(self.attention(y), memory.transpose(1, 2)), -1)
        return self.last(torch.tanh(torch.cat([torch.bmm(weights, memory), y], -1)))


class CRNN(nn.Module):
    """Convolutions over an image of text, then an LSTM along its width (Shi et al., TPAMI 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(conv(1, 8), nn.MaxPool2d(2, 2), conv(8, 16), nn.MaxPool2d((2, 1), (2, 1)))
        self.lstm, self.last = nn.LSTM(32, 8, bidirectional=True, batch_first=True), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 1, 8, 32] to logarithms of probabilities [N, 16, 10]."""
        y = self.features(x).permute(0, 3, 1, 2)
        y, _ = self.lstm(y.reshape(y.size(0), y.size(1), -1))
        return functional.log_softmax(self.last(y), -1)


class WaveNet(nn.Module):
    """Causal dilated convolutions with gates, and skip connections (van den Oord et al. 2016)."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.gated = nn.ModuleList([nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(3)])
        self.skips = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(3)])
        self.last = nn.Conv1d(channels, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map a signal [N, 1, T] to logits [N, 16, T]."""
        x, total = self.first(x), torch.zeros(1)
        for i, (layer, skip) in enumerate(zip(self.gated, self.skips, strict=True)):
            a, b = layer(functional.pad(x, (2**i, 0))).chunk(2, 1)
            y = skip(torch.tanh(a) * torch.sigmoid(b))
            x, total = x + y, total + y
        return self.last(torch.relu(total))


class TCN(nn.Module):
    """Residual causal convolutions, the ends cut off (Bai et al. 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv1d(8, 8, 3, padding=2 * d, dilation=d) for d in (1, 2))
        self.lift, self.last = nn.Conv1d(4, 8, 1), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 4, T] to logits [N, 3]."""
        x = self.lift(x)
        for layer, cut in ((self.first, 2), (self.second, 4)):
            x = x + torch.relu(layer(x)[:, :, :-cut].contiguous())
        return self.last(x[:, :, -1])


class Mamba(nn.Module):
    """A selective state space, its recurrence stepped through time (Gu and Dao 2023, algorithm 2)."""

    def __init__(self, width: int = 8, states: int = 4) -> None:
        super().__init__()
        self.width, self.states = width, states
        self.inwards, self.outwards = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.conv = nn.Conv1d(width, width, 3, padding=2, groups=width)
        self.select, self.step = nn.Linear(width, 2 * states), nn.Linear(width, width)
        self.decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1).repeat(width, 1)))
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, width] to [N, T, width]."""
        length = x.shape[1]
        x, gate = self.inwards(x).chunk(2, -1)
        x = functional.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
        b, c = self.select(x).split(self.states, -1)
        step = functional.softplus(self.step(x))
        decay = torch.exp(step.unsqueeze(-1) * -torch.exp(self.decay))
        drive = step.unsqueeze(-1) * b.unsqueeze(2) * x.unsqueeze(-1)
        state, outputs = torch.zeros_like(drive[:, 0]), []
        for t in range(length):
            state = decay[:, t] * state + drive[:, t]
            outputs.append((state * c[:, t].unsqueeze(1)).sum(-1))
        y = torch.stack(outputs, 1) + x * self.skip
        return self.outwards(y * functional.silu(gate))


ARCHITECTURES = (
    Architecture("rnn", lambda: Recurrent(nn.RNN(6, 16, batch_first=True), 16), series(7, 6)),
    Architecture("lstm_cell", Cells, series(3, 4)),
    Architecture("seq2seq", Seq2Seq, (Input(("batch", 6), 50, "source"), Input(("batch", 5), 50, "target"))),
    Architecture("crnn", CRNN, (Input(("batch", 1, 8, 32)),)),
    Architecture("wavenet", WaveNet, (Input(("batch", 1, 20)),)),
    Architecture("tcn", TCN, (Input(("batch", 4, 16)),)),
    Architecture("mamba", Mamba, series(5, 8)),
)
