"""Load pretrained weights: torchvision's published state dicts, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from mlhood.errors import ModelError

_Module = TypeVar("_Module", bound=nn.Module)

# torchvision's IMAGENET1K_V1 weights; the file name contains the first digits of the SHA-256.
PUBLISHED = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet34": "https://download.pytorch.org/models/resnet34-b627a593.pth",
    "resnet50": "https://download.pytorch.org/models/resnet50-0676ba61.pth",
}


def load_weights(model: _Module, name: str, weights: str | Path | None) -> _Module:
    """Load weights into `model` in place and return it.

    Args:
        model: The network.
        name: Its published name, a key of `PUBLISHED`.
        weights: None keeps the model's weights, "imagenet" downloads the published ones (kept in torch's cache, so
            the network is needed once), anything else is a file with a state dict.

    Raises:
        ModelError: The weights cannot be downloaded or read, or do not match the model.
    """
    if weights is None:
        return model
    state = _published(name) if weights == "imagenet" else _from_file(Path(weights))
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ModelError(
            "the weights do not match the model",
            where=f"{name}, {weights}",
            expected="the model's own parameter names and shapes",
            got=_first_lines(error),
            todo="build the model with the number of classes that the weights were trained with",
        ) from error
    return model


def _published(name: str) -> dict[str, Any]:
    url = PUBLISHED[name]
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise ModelError(
            "the published weights cannot be downloaded",
            where=url,
            got=_first_lines(error),
            todo=f"connect to a network once, or give a file: {name}(weights='{Path(url).name}'); "
            "without this argument the weights are random",
        ) from error


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ModelError(
            "no such weights file",
            where=path,
            expected='"imagenet" or a file with a state dict (.pth)',
            todo="check the path",
        )
    try:
        # weights_only: unpickling arbitrary objects would execute untrusted code.
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the pickle, zip and storage layers raise various exception types
        raise ModelError(
            "the weights file cannot be read",
            where=path,
            expected="a state dict saved with torch.save",
            got=_first_lines(error),
            todo="save it again with torch.save(model.state_dict(), path)",
        ) from error


def _first_lines(error: Exception, limit: int = 3) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines[:limit]) or type(error).__name__
