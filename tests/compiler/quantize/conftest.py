"""Graphs to quantise: a LeNet trained on the digits, and a small residual network."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn import functional

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.quantize import profile
from mlhood.exchange import export
from mlhood.models import LeNet, digits, train

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data():
    return digits("")


def trained_lenet(data, seed, epochs=3):
    torch.manual_seed(seed)
    model = LeNet()
    train(model, data.train_images, data.train_labels, epochs=epochs, seed=seed)
    return model.eval()


@pytest.fixture(scope="session")
def lenet_model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize") / "lenet.onnx"
    return onnx.load(export(trained_lenet(data, 0), np.zeros((1, 1, 32, 32), np.float32), path))


@pytest.fixture(scope="session")
def lenet_graph(lenet_model):
    return optimize(import_model(lenet_model))


@pytest.fixture(scope="session")
def lenet_profile(lenet_graph, data):
    return profile(lenet_graph, [{"image": data.train_images[:200]}])


class Branches(nn.Module):
    """A residual block, concatenated branches, several activations, and average pooling."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.wide = nn.Conv2d(8, 6, 3, padding=1, groups=2)
        self.narrow = nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(10, 5)

    def forward(self, x):
        x = functional.relu6(self.stem(x))
        x = torch.relu(self.second(functional.leaky_relu(self.first(x), 0.1)) + x)
        x = torch.cat([torch.tanh(self.wide(x)), torch.sigmoid(self.narrow(x))], 1)
        x = functional.avg_pool2d(x, 3, stride=2, padding=1)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.fixture(scope="session")
def branches_model(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("quantize") / "branches.onnx"
    return onnx.load(export(Branches().eval(), torch.zeros(1, 3, 16, 16), path))


@pytest.fixture(scope="session")
def branches_graph(branches_model):
    return optimize(import_model(branches_model))


@pytest.fixture(scope="session")
def images():
    return np.random.default_rng(0).standard_normal((48, 3, 16, 16), np.float32)


@pytest.fixture(scope="session")
def branches_profile(branches_graph, images):
    return profile(branches_graph, [{"image": images}])
