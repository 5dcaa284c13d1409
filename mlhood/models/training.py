"""Training a classifier, and counting what it gets right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from mlhood.errors import ModelError


def train(
    model: nn.Module,
    images: Any,
    labels: Any,
    *,
    epochs: int = 15,
    batch_size: int = 32,
    lr: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Train `model` in place with Adam on the cross entropy; the learning rate falls linearly to zero.

    Same model, data and seed give the same weights, whatever the number of cores: one thread does the work, which
    for networks this small is as fast as two, and much faster where others use the machine as well. torch's
    global random numbers are as before when it returns.

    Args:
        model: Maps a batch of images to logits [N, classes]; stays in the mode (train or eval) it came in.
        images: float32 [N, ...], an array or tensor.
        labels: int64 [N], from 0 to classes - 1.
        epochs: How often each image is seen.
        batch_size: Images a step.
        lr: Adam's learning rate at the start.
        seed: Fixes the order of the images, and dropout where the model has it.

    Returns:
        The mean loss of each epoch.

    Raises:
        ModelError: Images and labels do not fit each other or the model, or the loss is no longer a number.
    """
    x, y = _tensors(images, labels)
    if epochs < 1 or batch_size < 1 or not lr > 0:
        raise ModelError(
            "training needs at least one epoch, one image a batch and a positive learning rate",
            got=f"epochs={epochs}, batch_size={batch_size}, lr={lr}",
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    steps = epochs * math.ceil(len(x) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    losses = []
    with mode(model, training=True), _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for epoch in range(epochs):
            loss = _epoch(model, optimizer, schedule, [(x[i], y[i]) for i in torch.randperm(len(x)).split(batch_size)])
            if not math.isfinite(loss):
                raise ModelError(
                    "the training went astray: the loss is no longer a finite number",
                    where=f"epoch {epoch + 1}",
                    got=loss,
                    todo="take a smaller learning rate, and look for infinite values in the images",
                )
            losses.append(loss)
    return losses


def _epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
) -> float:
    """Take one step a batch and return the mean loss of an image."""
    total = 0.0
    for images, labels in batches:
        optimizer.zero_grad()
        logits = _logits(model, images)
        if not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
            raise ModelError(
                "a label has no logit",
                expected=f"labels from 0 to {logits.shape[1] - 1}",
                got=f"{int(labels.min())} to {int(labels.max())}",
            )
        loss = functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(images)
    return total / sum(len(images) for images, _ in batches)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def accuracy(model: nn.Module, images: Any, labels: Any, *, batch_size: int = 1024) -> float:
    """Share of images whose largest logit is the label's, from 0 to 1, in evaluation mode.

    Args:
        model: Maps a batch of images to logits [N, classes]; stays in the mode it came in.
        images: float32 [N, ...], an array or tensor.
        labels: int64 [N].
        batch_size: Images at a time; bounds the memory, not the result.

    Raises:
        ModelError: Images and labels do not fit each other or the model.
    """
    x, y = _tensors(images, labels)
    with mode(model, training=False), torch.inference_mode():
        right = sum(
            int((_logits(model, part).argmax(1) == truth).sum())
            for part, truth in zip(x.split(batch_size), y.split(batch_size), strict=True)
        )
    return right / len(x)


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a model into training or evaluation mode, and each of its modules back as it was."""
    before = {module: module.training for module in model.modules()}
    try:
        model.train(training)
        yield
    finally:
        for module, was_training in before.items():
            module.training = was_training


def _logits(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    try:
        logits = model(images)
    except RuntimeError as error:
        raise ModelError(
            "the model does not take these images",
            where=type(model).__name__,
            got=f"images of shape {list(images.shape)}: {str(error).splitlines()[0]}",
            todo="compare the shape of the images with what the first layers expect",
        ) from error
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2 or len(logits) != len(images):
        raise ModelError(
            "the model does not return one row of logits an image",
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
        "images and labels do not belong together",
        expected="images [N, ...] and as many whole-number labels [N], N at least 1",
        got=f"images {list(x.shape)} and labels {list(y.shape)} of {y.dtype}",
    )


def _tensor(values: Any) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        return values
    try:
        # A copy: torch warns about sharing an array that must not be written.
        return torch.tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise ModelError(
            "these are not numbers that torch can take",
            expected="a NumPy array or a torch tensor",
            got=type(values).__name__,
        ) from error
