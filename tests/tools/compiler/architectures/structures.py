"""Networks for points, graphs, volumes and tables."""

from __future__ import annotations

import torch
from torch import nn

from tests.tools.compiler.architectures.architecture import Architecture, Input


def cnn_3d() -> nn.Module:
    """Build a network for volumes: convolutions and pools in three dimensions (Tran et al., ICCV 2015)."""
    layers = (nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(4, 8, 3))
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 3))


class PointNet(nn.Module):
    """Perceptrons of each point, transformed by a predicted matrix; maxima over points (Qi et al., CVPR 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.transform = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.matrix = nn.Linear(16, 9)
        self.features = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.last = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map points [N, 3, P] to logarithms of probabilities [N, 4]."""
        matrix = self.matrix(torch.max(self.transform(x), 2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(2, 1), matrix).transpose(2, 1)
        x = torch.max(self.features(x), 2, keepdim=True)[0].view(-1, 32)
        return torch.log_softmax(self.last(x), 1)


class GCN(nn.Module):
    """Graph convolutions with a dense adjacency, normalised by degrees (Kipf and Welling, ICLR 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Map vertices [N, V, 5] and edges [N, V, V], 0 or 1, to logits [N, V, 3]."""
        adjacency = (edges + edges.transpose(1, 2)).clamp(max=1).float() + torch.eye(edges.shape[-1])
        scale = adjacency.sum(-1).pow(-0.5)
        adjacency = scale.unsqueeze(-1) * adjacency * scale.unsqueeze(-2)
        return adjacency @ self.second(torch.relu(adjacency @ self.first(x)))


class GAT(nn.Module):
    """Graph attention: weights from pairs of vertices, masked by the edges (Velickovic et al., ICLR 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.source, self.target = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Map vertices [N, V, 5] and edges [N, V, V], 0 or 1, to vectors [N, V, 8]."""
        h = self.project(x)
        scores = nn.functional.leaky_relu(self.source(h) + self.target(h).transpose(1, 2), 0.2)
        scores = scores.masked_fill(edges == 0, -1e9)
        return nn.functional.elu(torch.softmax(scores, -1) @ h)


class DLRM(nn.Module):
    """Embedding bags and their products in pairs, for recommendations (Naumov et al. 2019)."""

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self, tables: int = 3, width: int = 8) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(4, width), nn.ReLU())
        self.tables = nn.ModuleList([nn.Embedding(20, width) for _ in range(tables)])
        rows, columns = torch.tril_indices(tables + 1, tables + 1, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.top = nn.Sequential(nn.Linear(width + len(rows), 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """Map numbers [N, 4] and ids [N, tables, 2] to probabilities [N, 1]."""
        x = self.bottom(dense)
        bags = [table(sparse[:, i]).sum(1) for i, table in enumerate(self.tables)]
        vectors = torch.stack([x, *bags], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, products], 1))


class WideAndDeep(nn.Module):
    """A linear model of crossed features beside a perceptron (Cheng et al. 2016), with bagged embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 8, mode="mean")
        self.deep, self.wide = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1)), nn.Linear(6, 1)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Map numbers [N, 4] and ids [N, 3] to probabilities [N, 1]."""
        pairs = torch.triu_indices(4, 4, 1)
        crossed = dense[:, pairs[0]] * dense[:, pairs[1]]
        deep = self.deep(torch.cat([dense, self.bag(ids)], 1))
        return torch.sigmoid(deep + self.wide(crossed))


_VERTICES = (Input(("batch", 6, 5)), Input(("batch", 6, 6), 2, "edges"))

ARCHITECTURES = (
    Architecture("cnn_3d", cnn_3d, (Input(("batch", 1, 8, 8, 8)),)),
    Architecture("pointnet", PointNet, (Input(("batch", 3, 20)),)),
    Architecture("gcn", GCN, _VERTICES),
    Architecture("gat", GAT, _VERTICES),
    Architecture("dlrm", DLRM, (Input(("batch", 4), name="dense"), Input(("batch", 3, 2), 20, "sparse"))),
    Architecture("wide_and_deep", WideAndDeep, (Input(("batch", 4), name="dense"), Input(("batch", 3), 20, "ids"))),
)
