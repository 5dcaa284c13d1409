"""Functions that checks call in the student's process, most of them about torch modules; they return plain data.

Like everything from that process, the results are only claims: checks compare them with what they compute themselves.

A request brings the function that it calls, and what that uses of its and other modules of `grading`, as text
(`rpc.sources`). So a module of probes imports names from those modules, not the modules, and keeps no state between
requests: what is to be kept is returned, and the judge passes its handle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "groups")


def parameters(model: Any) -> dict[str, Any]:
    """Return the parameters of a module by name."""
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def load(model: Any, values: dict[str, Any]) -> None:
    """Set the parameters of a module from arrays, by name."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.as_tensor(values[name]))


def leaves(model: Any) -> list[dict[str, Any]]:
    """Return type, name and geometry of the modules without children, in the order of their definition."""
    return [
        {"type": type(module).__name__, "name": name}
        | {key: _plain(getattr(module, key)) for key in GEOMETRY if hasattr(module, key)}
        for name, module in model.named_modules()
        if not list(module.children())
    ]


def forward(model: Any, images: Any) -> Any:
    """Return the output of a module in evaluation mode, without gradients; the mode is restored."""
    import torch

    training = model.training
    try:
        model.eval()
        with torch.no_grad():
            return model(images)
    finally:
        model.train(training)


def empty_call(size: int) -> np.ndarray:
    """Return float32 zeros: the time of this call is the round trip alone."""
    return np.zeros(size, np.float32)


class Kept:
    """Arrays that stay in the student's process, to be used by later calls."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays


def keep(*arrays: np.ndarray) -> Kept:
    """Keep arrays, so that they do not travel with a call that is timed."""
    return Kept(arrays)


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


def single_thread() -> Any:
    """Limit all loaded libraries to one thread, until `restore` of the returned object is called."""
    from mlhood.measure.threading import Threads

    threads = Threads(1)
    threads.apply()
    return threads


def _plain(value: Any) -> Any:
    return [value, value] if isinstance(value, int) else value
