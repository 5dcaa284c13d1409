"""Training: the accuracy that the course promises, reproducible, without side effects on torch."""

import numpy as np
import pytest
import torch

from mlhood.errors import ModelError
from mlhood.models import MLP, LeNet, LeNetBN, accuracy, digits, train


@pytest.fixture(scope="module")
def data():
    return digits(mnist="")


def new_model(seed, network=LeNet):
    torch.manual_seed(seed)
    return network()


@pytest.mark.parametrize("seed", [1, 2])
def test_lenet_classifies_97_percent_of_unseen_digits(data, seed):
    model = new_model(seed)
    losses = train(model, data.train_images, data.train_labels, seed=seed)
    assert len(losses) == 15
    assert losses[-1] < 0.1 * losses[0]
    assert accuracy(model, data.test_images, data.test_labels) >= 0.97


def test_same_seed_same_weights_and_global_random_state_restored(data):
    few, labels = data.train_images[:100], data.train_labels[:100]
    models = [new_model(0), new_model(0), new_model(0)]
    before = torch.get_rng_state()
    losses = [train(model, few, labels, epochs=2, seed=seed) for model, seed in zip(models, (3, 3, 4), strict=True)]
    assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1] != losses[2]
    first, second, third = (model.state_dict() for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["fc3.weight"], third["fc3.weight"])


def test_modes_are_restored(data):
    model = LeNetBN()
    model.bn1.eval()  # a frozen layer
    train(model, data.train_images[:8], data.train_labels[:8], epochs=1)
    accuracy(model, data.test_images[:8], data.test_labels[:8])
    assert model.training
    assert model.bn2.training
    assert not model.bn1.training


def test_accuracy_is_the_fraction_of_correct_images():
    class Fixed(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(torch.full((len(x),), 3), 10).float()

    labels = np.array([3, 3, 1, 3])
    images = np.zeros((4, 1, 2, 2), np.float32)
    assert accuracy(Fixed(), images, labels) == 0.75
    assert accuracy(Fixed(), images, labels, batch_size=3) == 0.75


def test_read_only_arrays_are_accepted():
    images, labels = np.zeros((4, 784), np.float32), np.arange(4)
    images.flags.writeable = labels.flags.writeable = False
    train(MLP(), images, labels, epochs=1)
    train(MLP(), torch.tensor(images), torch.tensor(labels), epochs=1)


def test_diverging_training_raises():
    with pytest.raises(ModelError, match="diverged"):
        train(MLP(), np.full((4, 784), np.nan, np.float32), np.zeros(4, np.int64), epochs=1)
