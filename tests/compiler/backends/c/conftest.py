"""A LeNet that reads the course's digits."""

import pytest
import torch

from mlhood.exchange import export
from mlhood.models import LeNet, digits
from mlhood.models.training import train


@pytest.fixture(scope="session")
def trained_lenet(tmp_path_factory):
    data = digits("")
    torch.manual_seed(0)
    model = LeNet()
    train(model, data.train_images, data.train_labels, epochs=8)
    return export(model.eval(), torch.zeros(1, 1, 32, 32), tmp_path_factory.mktemp("trained") / "lenet.onnx")
