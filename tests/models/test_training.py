"""Training: it reaches what the course promises, repeatably, and leaves the rest of torch alone."""

import numpy as np
import pytest
import torch

from mlhood.errors import ModelError
from mlhood.models import MLP, LeNet, LeNetBN, accuracy, digits, train


@pytest.fixture(scope="module")
def data():
    return digits(mnist="")


def fresh(seed, network=LeNet):
    torch.manual_seed(seed)
    return network()


@pytest.mark.parametrize("seed", [1, 2])
def test_lenet_reads_97_percent_of_unseen_digits(data, seed):
    model = fresh(seed)
    losses = train(model, data.train_images, data.train_labels, seed=seed)
    assert len(losses) == 15
    assert losses[-1] < 0.1 * losses[0]
    assert accuracy(model, data.test_images, data.test_labels) >= 0.97


def test_same_seed_same_weights_and_global_numbers_untouched(data):
    few, labels = data.train_images[:100], data.train_labels[:100]
    models = [fresh(0), fresh(0), fresh(0)]
    before = torch.get_rng_state()
    losses = [train(model, few, labels, epochs=2, seed=seed) for model, seed in zip(models, (3, 3, 4), strict=True)]
    assert torch.equal(torch.get_rng_state(), before)
    assert losses[0] == losses[1] != losses[2]
    first, second, third = (model.state_dict() for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["fc3.weight"], third["fc3.weight"])


def test_modes_are_as_before(data):
    model = LeNetBN()
    model.bn1.eval()  # a frozen layer
    train(model, data.train_images[:8], data.train_labels[:8], epochs=1)
    accuracy(model, data.test_images[:8], data.test_labels[:8])
    assert model.training
    assert model.bn2.training
    assert not model.bn1.training


def test_accuracy_counts():
    class Fixed(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(torch.full((len(x),), 3), 10).float()

    labels = np.array([3, 3, 1, 3])
    images = np.zeros((4, 1, 2, 2), np.float32)
    assert accuracy(Fixed(), images, labels) == 0.75
    assert accuracy(Fixed(), images, labels, batch_size=3) == 0.75


def test_arrays_that_may_not_be_written_are_taken():
    images, labels = np.zeros((4, 784), np.float32), np.arange(4)
    images.flags.writeable = labels.flags.writeable = False
    train(MLP(), images, labels, epochs=1)
    train(MLP(), torch.tensor(images), torch.tensor(labels), epochs=1)


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((3, 784), np.float32), np.zeros(2, np.int64)),
        (np.zeros((0, 784), np.float32), np.zeros(0, np.int64)),
        (np.zeros((3, 784), np.float32), np.zeros(3, np.float32)),
        (np.zeros((3, 784), np.float32), np.zeros((3, 10), np.int64)),
        (["a"], [1]),
    ],
)
def test_images_and_labels_must_belong_together(images, labels):
    with pytest.raises(ModelError):
        train(MLP(), images, labels)


def test_wrong_images_are_told(data):
    with pytest.raises(ModelError, match="does not take these images") as caught:
        accuracy(LeNet(), np.zeros((2, 1, 28, 28), np.float32), np.zeros(2, np.int64))
    assert "[2, 1, 28, 28]" in caught.value.parts["got"]
    with pytest.raises(ModelError, match="one row of logits"):
        accuracy(torch.nn.Identity(), data.test_images[:2], data.test_labels[:2])


def test_a_training_that_goes_astray_is_told():
    with pytest.raises(ModelError, match="astray"):
        train(MLP(), np.full((4, 784), np.nan, np.float32), np.zeros(4, np.int64), epochs=1)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"lr": float("nan")}])
def test_senseless_settings_are_told(wrong):
    with pytest.raises(ModelError, match="at least one epoch"):
        train(MLP(), np.zeros((4, 784), np.float32), np.zeros(4, np.int64), **wrong)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_label_without_a_logit_is_told(label):
    with pytest.raises(ModelError, match="no logit"):
        train(MLP(), np.zeros((4, 784), np.float32), np.array([0, 1, 2, label]))
