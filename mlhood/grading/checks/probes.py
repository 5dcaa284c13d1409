"""Questions asked in the student's process, most of them about torch modules; the answers are plain data.

As everything that comes from there, the answers are claims, and checks compare them with what they compute themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "groups")


def parameters(model: Any) -> dict[str, Any]:
    """Every parameter of a module by name, as an array."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def load(model: Any, values: dict[str, Any]) -> None:
    """Give parameters the values of arrays, by name."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.as_tensor(values[name]))


def leaves(model: Any) -> list[dict[str, Any]]:
    """The modules without children, in the order of their definition: type, name and geometry."""
    return [
        {"type": type(module).__name__, "name": name}
        | {key: _plain(getattr(module, key)) for key in GEOMETRY if hasattr(module, key)}
        for name, module in model.named_modules()
        if not list(module.children())
    ]


def forward(model: Any, images: Any) -> Any:
    """What a module computes in evaluation mode, without gradients. The mode is put back."""
    import torch

    training = model.training
    try:
        model.eval()
        with torch.no_grad():
            return model(images)
    finally:
        model.train(training)


def nothing(shape: list[int], *arguments: Any) -> Any:
    """Zeros, float32, whatever the arguments: what there and back takes by itself."""
    return np.zeros(shape, np.float32)


@contextmanager
def patched_globals(function: Any, **replacements: Any) -> Iterator[None]:
    """Replace global names that a function sees, and restore them afterwards."""
    names = getattr(function, "__globals__", {})
    before = {name: names[name] for name in replacements if name in names}
    names.update(replacements)
    try:
        yield
    finally:
        for name in replacements:
            names.pop(name, None)
        names.update(before)


def one_thread() -> Any:
    """One thread for all libraries that are loaded, until `restore` of what is returned is called."""
    from mlhood.measure.threading import Threads

    fixed = Threads(1)
    fixed.apply()
    return fixed


def _plain(value: Any) -> Any:
    return [value, value] if isinstance(value, int) else value
