"""Train a classifier, and compute its accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from mlhood.errors import ModelError

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of logits [N, classes] and labels [N]; the images [N, ...] do not matter."""
    return functional.cross_entropy(logits, labels)


def train(
    model: nn.Module,
    images: Any,
    labels: Any,
    *,
    epochs: int = 15,
    batch_size: int = 32,
    lr: float = 3e-3,
    seed: int = 0,
    loss: Loss = cross_entropy,
) -> list[float]:
    """Train `model` in place with Adam; the learning rate decays linearly to zero.

    The same model, data and seed give the same weights, regardless of the number of cores: training uses one
    thread, which for networks this small is as fast as two, and much faster on a busy machine. torch's global
    random state is restored.

    Args:
        model: Maps a batch of images to logits [N, classes]; its mode (train or eval) is restored.
        images: float32 [N, ...], an array or tensor.
        labels: int64 [N], from 0 to classes - 1.
        epochs: Number of passes over the images.
        batch_size: Images per step.
        lr: Adam's initial learning rate.
        seed: Determines the order of the images, and dropout if the model has it.
        loss: Maps the logits, labels and images of a batch to a scalar, the mean over the batch.

    Returns:
        The mean loss of each epoch.

    Raises:
        ModelError: The loss is not finite.
    """
    x, y = _tensors(images, labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    steps = epochs * math.ceil(len(x) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    with mode(model, training=True), _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for epoch in range(epochs):
            batches = [(x[i], y[i]) for i in torch.randperm(len(x)).split(batch_size)]
            mean = _epoch(model, optimizer, schedule, batches, loss)
            if not math.isfinite(mean):
                raise ModelError(
                    "the training diverged: the loss is not finite",
                    where=f"epoch {epoch + 1}",
                    got=mean,
                    todo="use a smaller learning rate, and check the images for infinite values",
                )
            losses.append(mean)
    return losses


def _epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    loss: Loss,
) -> float:
    """Take one step per batch and return the mean loss per image."""
    total = 0.0
    for images, labels in batches:
        optimizer.zero_grad()
        mean = loss(model(images), labels, images)
        mean.backward()
        optimizer.step()
        schedule.step()
        total += mean.item() * len(images)
    return total / sum(len(images) for images, _ in batches)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def accuracy(model: nn.Module, images: Any, labels: Any, *, batch_size: int = 1024) -> float:
    """Return the fraction of images whose largest logit is the label's, in evaluation mode.

    Args:
        model: Maps a batch of images to logits [N, classes]; its mode is restored.
        images: float32 [N, ...], an array or tensor.
        labels: int64 [N].
        batch_size: Images per forward pass; affects memory only.
    """
    x, y = _tensors(images, labels)
    with mode(model, training=False), torch.inference_mode():
        correct = sum(
            int((model(batch).argmax(1) == truth).sum())
            for batch, truth in zip(x.split(batch_size), y.split(batch_size), strict=True)
        )
    return correct / len(x)


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a model into training or evaluation mode, and restore the mode of each of its modules afterwards."""
    previous = {module: module.training for module in model.modules()}
    try:
        model.train(training)
        yield
    finally:
        for module, was_training in previous.items():
            module.training = was_training


def _tensors(images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    # copies of arrays: torch warns about sharing a read-only one
    x, y = (each if isinstance(each, torch.Tensor) else torch.tensor(np.asarray(each)) for each in (images, labels))
    return x.float(), y.long()
