"""Pruning and distillation: what is kept, what stays zero, and the loss by its definition."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from mlhood.errors import ModelError
from mlhood.models import MLP, LeNet, LeNetBN, accuracy, digits, distillation, narrow, sparse, train
from mlhood.models.compression import scaled

WEIGHTS = ("conv1", "conv2", "fc1", "fc2", "fc3")


@pytest.fixture(scope="module")
def data():
    return digits(mnist="")


@pytest.fixture(scope="module")
def teacher(data):
    model = new(LeNet, 1)
    train(model, data.train_images, data.train_labels, epochs=6)
    return model


def new(network, seed, **options):
    torch.manual_seed(seed)
    return network(**options)


def all_weights(model):
    return torch.cat([getattr(model, name).weight.detach().flatten() for name in WEIGHTS])


@pytest.mark.parametrize("sparsity", [0, 0.3, 0.9, 0.99])
def test_the_smallest_weights_of_all_layers_become_zero(sparsity):
    model = new(LeNet, 0)
    before = all_weights(model)
    with sparse(model, sparsity):
        pass
    after = all_weights(model)
    zeros = int((after == 0).sum())
    assert zeros == round(sparsity * len(before))
    assert torch.equal(after[after != 0], before[after != 0])
    if zeros:
        assert before[after == 0].abs().max() <= before[after != 0].abs().min()
    assert set(model.state_dict()) == set(LeNet().state_dict())
    copy.deepcopy(model)  # torch cannot copy a model that still has masks


def test_zeros_stay_while_the_others_are_trained(data):
    model = new(LeNet, 0)
    with sparse(model, 0.8):
        zeros = all_weights(model) == 0
        before = all_weights(model)
        train(model, data.train_images[:200], data.train_labels[:200], epochs=1)
    after = all_weights(model)
    assert torch.equal(after == 0, zeros)
    assert (after[~zeros] != before[~zeros]).float().mean() > 0.5  # those of dead units do not change


def test_masks_go_when_the_training_fails():
    model = new(LeNet, 0)
    with pytest.raises(RuntimeError, match="power"), sparse(model, 0.5):
        raise RuntimeError("power failure")
    assert not any("mask" in name for name in model.state_dict())


@pytest.mark.parametrize("sparsity", [-0.1, 1, 1.5, math.nan])
def test_an_invalid_sparsity_is_refused(sparsity):
    with pytest.raises(ModelError, match="invalid sparsity"), sparse(LeNet(), sparsity):
        pass


def test_a_model_without_weights_cannot_be_pruned():
    with pytest.raises(ModelError, match="nothing to prune"), sparse(torch.nn.ReLU(), 0.5):
        pass


@pytest.mark.parametrize("network", [LeNet, LeNetBN])
def test_removing_dead_units_changes_nothing(network, data):
    """Units whose outgoing weights are zero contribute nothing: without them the logits are the same."""
    model = new(network, 3).eval()
    keep = {"conv1": [0, 2, 5], "conv2": list(range(1, 16, 2)), "fc1": list(range(60)), "fc2": list(range(42, 84))}
    with torch.no_grad():
        for name, following in pairwise(WEIGHTS):
            dead = [i for i in range(len(model.get_parameter(f"{name}.weight"))) if i not in keep[name]]
            model.get_parameter(f"{name}.weight")[dead] *= 1e-3  # the smallest ones
            weight = model.get_parameter(f"{following}.weight")
            pixels = 25 if following == "fc1" else 1
            weight[:, [i * pixels + p for i in dead for p in range(pixels)]] = 0
            if name.startswith("conv") and network is LeNetBN:
                statistics = model.get_submodule(f"bn{name[-1]}")
                statistics.running_mean.normal_()
                statistics.running_var.uniform_(0.5, 2)
        smaller = narrow(model, 0.5)
        images = torch.from_numpy(data.test_images[:8])
        torch.testing.assert_close(smaller(images), model(images), atol=1e-4, rtol=1e-4)
    assert smaller.widths == (3, 8, 60, 42)
    assert type(smaller) is network
    assert not smaller.training


def test_all_outputs_may_be_kept(teacher, data):
    same = narrow(teacher, 1)
    assert all(torch.equal(value, teacher.state_dict()[name]) for name, value in same.state_dict().items())
    assert same is not teacher


def test_at_least_one_unit_of_each_layer_stays(data):
    model = narrow(LeNet(), 0.01)
    assert model.widths == (1, 1, 1, 1)
    assert accuracy(model, data.test_images[:4], data.test_labels[:4]) >= 0
    assert scaled((6, 16, 120, 84), 0.25) == (2, 4, 30, 21)


@pytest.mark.parametrize("keep", [0, -1, 1.01, math.nan])
def test_an_invalid_share_is_refused(keep):
    with pytest.raises(ModelError, match="invalid share"):
        narrow(LeNet(), keep)


def test_only_lenet_is_made_narrower():
    with pytest.raises(ModelError, match="LeNet or LeNetBN"):
        narrow(MLP(), 0.5)


@pytest.mark.parametrize(("temperature", "weight"), [(1, 1), (4, 0.7), (2, 0)])
def test_the_loss_is_hintons(temperature, weight):
    rng = np.random.default_rng(0)
    logits, taught = rng.normal(size=(2, 5, 10))
    labels = np.array([1, 0, 9, 3, 3])

    def probabilities(x, t):
        e = np.exp(x / t)
        return e / e.sum(1, keepdims=True)

    p, q = probabilities(taught, temperature), probabilities(logits, temperature)
    soft = (p * np.log(p / q)).sum(1).mean()
    hard = -np.log(probabilities(logits, 1)[np.arange(5), labels]).mean()
    expected = (1 - weight) * hard + weight * temperature**2 * soft

    loss = distillation(lambda_module(torch.from_numpy(taught)), temperature=temperature, weight=weight)
    found = loss(torch.from_numpy(logits), torch.from_numpy(labels), torch.zeros(5, 1))
    assert found.item() == pytest.approx(expected, rel=1e-9)


def test_a_student_follows_its_teacher_even_against_the_labels(teacher, data):
    """With weight 1 the labels do not matter, so that wrong ones do no harm."""
    student = new(LeNet, 5, widths=(3, 8, 60, 42))
    wrong = (data.train_labels + 1) % 10
    train(student, data.train_images, wrong, epochs=6, loss=distillation(teacher, weight=1))
    assert accuracy(student, data.test_images, data.test_labels) > 0.9
    assert teacher.training
    assert all(parameter.grad is None or not parameter.grad.isnan().any() for parameter in teacher.parameters())


def test_the_teacher_is_not_trained(teacher, data):
    before = copy.deepcopy(teacher.state_dict())
    train(new(LeNet, 0), data.train_images[:64], data.train_labels[:64], epochs=1, loss=distillation(teacher))
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())


def test_a_teacher_of_other_classes_is_refused(data):
    loss = distillation(LeNet(classes=7))
    with pytest.raises(ModelError, match="number of logits"):
        train(LeNet(), data.train_images[:8], data.train_labels[:8], epochs=1, loss=loss)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": math.nan}, {"weight": -0.1}, {"weight": 2}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ModelError, match="invalid distillation"):
        distillation(LeNet(), **options)


def lambda_module(logits):
    class Fixed(torch.nn.Module):
        def forward(self, images):
            return logits

    return Fixed()
