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
        ModelError: Images and labels do not match each other or the model, or the loss is not finite.
    """
    x, y = _tensors(images, labels)
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ModelError(
            "training needs at least one epoch, a batch size of at least one and a positive learning rate",
            got=f"epochs={epochs}, batch_size={batch_size}, lr={lr}",
        )
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
        logits = _logits(model, images)
        if not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
            raise ModelError(
                "a label is out of range",
                expected=f"labels from 0 to {logits.shape[1] - 1}",
                got=f"{int(labels.min())} to {int(labels.max())}",
            )
        mean = loss(logits, labels, images)
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

    Raises:
        ModelError: Images and labels do not match each other or the model.
    """
    x, y = _tensors(images, labels)
    with mode(model, training=False), torch.inference_mode():
        correct = sum(
            int((_logits(model, batch).argmax(1) == truth).sum())
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


def _logits(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    try:
        logits = model(images)
    except RuntimeError as error:
        raise ModelError(
            "the model does not accept images of this shape",
            where=type(model).__name__,
            got=f"images of shape {list(images.shape)}: {str(error).splitlines()[0]}",
            todo="compare the shape of the images with the one that the first layer expects",
        ) from error
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
        raise ModelError(
            "the model does not return one row of logits per image",
            where=type(model).__name__,
            expected=f"a tensor [{len(images)}, classes]",
            got=list(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__,
            todo="return the output of the last linear layer",
        )
    return logits


def _tensors(images: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = _tensor(images).float(), _tensor(labels)
    if x.ndim >= 2 and y.ndim == 1 and len(x) == len(y) > 0 and not y.is_floating_point():
        return x, y.long()
    raise ModelError(
        "images and labels do not match",
        expected="images [N, ...] and integer labels [N], N at least 1",
        got=f"images {list(x.shape)} and labels {list(y.shape)} of {y.dtype}",
    )


def _tensor(values: Any) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values
    try:
        # Copy the array: torch warns about sharing a read-only one.
        return torch.tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise ModelError(
            "the values cannot be converted to a torch tensor",
            expected="a NumPy array or a torch tensor",
            got=type(values).__name__,
        ) from error
