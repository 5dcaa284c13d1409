"""Make a network smaller: magnitude pruning, structured pruning, distillation.

Sources: S. Han and others, Learning both Weights and Connections for Efficient Neural Networks, NeurIPS 2015
(arXiv:1506.02626); H. Li and others, Pruning Filters for Efficient ConvNets, ICLR 2017 (arXiv:1608.08710); G. Hinton
and others, Distilling the Knowledge in a Neural Network, 2015 (arXiv:1503.02531).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

from mlhood.errors import ModelError
from mlhood.models.networks import LeNet
from mlhood.models.training import Loss, mode

_LAYERS: tuple[str, ...] = ("conv1", "conv2", "fc1", "fc2", "fc3")
_NORMALISATIONS = {"conv1": "bn1", "conv2": "bn2"}


@contextmanager
def sparse(model: nn.Module, sparsity: float) -> Iterator[None]:
    """Magnitude pruning: set the smallest weights of a model to zero, and keep them there while it is trained.

    They are the smallest in absolute value among the weights of all convolutions and linear layers together, so that
    layers may become sparse to different degrees. Biases stay. After the block the zeros are ordinary weights.

    Args:
        model: Pruned in place.
        sparsity: Share of the weights to set to zero, from 0 to less than 1.

    Raises:
        ModelError: The sparsity is not in the range, or the model has no such layers.
    """
    layers = [(m, "weight") for m in model.modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
    if not 0 <= sparsity < 1:
        raise ModelError("invalid sparsity", expected="0 to less than 1, the share of zeros", got=sparsity)
    if not layers:
        raise ModelError(
            "nothing to prune", expected="convolutions or linear layers in the model", got=type(model).__name__
        )
    prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=float(sparsity))
    try:
        yield
    finally:
        for layer, name in layers:
            prune.remove(layer, name)


def narrow(model: LeNet, keep: float) -> LeNet:
    """Structured pruning: return a LeNet with fewer filters and hidden units, those with the largest weights.

    Of each layer but the last, the outputs whose weights have the largest sums of absolute values are kept, and with
    them the weights of the next layer that read them. The result is a dense, smaller network, in the same mode.

    Args:
        model: Unchanged. A LeNetBN keeps its normalisations.
        keep: Share of each layer's outputs to keep, more than 0 and at most 1; at least one stays.

    Raises:
        ModelError: The share is not in the range, or the model is no LeNet.
    """
    if not isinstance(model, LeNet):
        raise ModelError("only LeNet can be made narrower", expected="LeNet or LeNetBN", got=type(model).__name__)
    if not 0 < keep <= 1:
        raise ModelError("invalid share of the outputs", expected="more than 0, at most 1", got=keep)
    widths = scaled(model.widths, keep)
    state = {}
    inputs = torch.arange(model.conv1.in_channels)
    for layer, width in zip(_LAYERS, (*widths, model.fc3.out_features), strict=True):
        weight = model.get_parameter(f"{layer}.weight").detach()
        outputs = _largest(weight, width)
        # a filter becomes as many inputs of a linear layer as it has pixels
        pixels = weight.shape[1] // _channels(model, layer)
        columns = (inputs[:, None] * pixels + torch.arange(pixels)).flatten()
        state[f"{layer}.weight"] = weight[outputs][:, columns]
        state[f"{layer}.bias"] = model.get_parameter(f"{layer}.bias").detach()[outputs]
        state |= _normalisation(model, layer, outputs)
        inputs = outputs
    smaller = type(model)(model.fc3.out_features, widths)
    smaller.load_state_dict(state)
    return smaller.train(model.training)


def scaled(widths: tuple[int, int, int, int], factor: float) -> tuple[int, int, int, int]:
    """Return a LeNet's widths times a factor, rounded, at least 1."""
    return cast(tuple[int, int, int, int], tuple(max(1, round(factor * width)) for width in widths))


def distillation(teacher: nn.Module, *, temperature: float = 4.0, weight: float = 0.9) -> Loss:
    """Return a loss for `train` with which a student imitates a teacher.

    It is (1 - weight) times the cross entropy with the labels, plus weight times temperature squared times the
    Kullback-Leibler divergence of the student's probabilities from the teacher's, both softened: the logits are divided
    by the temperature, which raises the probabilities of the wrong classes that the teacher nearly chose. The square
    makes up for gradients that the division shrinks (Hinton, section 2).

    Args:
        teacher: Maps the same images to as many logits; evaluated without gradients, its mode is restored.
        temperature: More than 0.
        weight: From 0, the labels only, to 1, the teacher only.

    Raises:
        ModelError: Temperature or weight are not in their ranges; in training, if the numbers of logits differ.
    """
    if not temperature > 0 or not 0 <= weight <= 1:
        raise ModelError(
            "invalid distillation",
            expected="a temperature of more than 0, and a weight from 0 to 1",
            got=f"temperature={temperature}, weight={weight}",
        )

    def loss(logits: torch.Tensor, labels: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        with mode(teacher, training=False), torch.no_grad():
            taught = teacher(images)
        if taught.shape != logits.shape:
            raise ModelError(
                "teacher and student do not have the same number of logits",
                expected=f"{list(taught.shape)}, as of the teacher",
                got=list(logits.shape),
            )
        soft, target = (functional.log_softmax(each / temperature, dim=1) for each in (logits, taught))
        divergence = functional.kl_div(soft, target, reduction="batchmean", log_target=True)
        return (1 - weight) * functional.cross_entropy(logits, labels) + weight * temperature**2 * divergence

    return loss


def _largest(weight: torch.Tensor, count: int) -> torch.Tensor:
    """Return the outputs with the largest sums of absolute weights, in their order."""
    norms = weight.abs().flatten(1).sum(1)
    return norms.argsort(descending=True, stable=True)[:count].sort().values


def _channels(model: LeNet, layer: str) -> int:
    """Return how many outputs of the layer before a layer reads."""
    before = dict(zip(_LAYERS, (model.conv1.in_channels, *model.widths), strict=True))
    return before[layer]


def _normalisation(model: LeNet, layer: str, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the state of the batch normalisation after a layer, if there is one, for some of its channels."""
    name = _NORMALISATIONS.get(layer, "")
    if not name or not hasattr(model, name):
        return {}
    state = model.get_submodule(name).state_dict()
    return {f"{name}.{key}": value[outputs] if value.ndim else value for key, value in state.items()}
