"""The operators that race in P5.3, run in the student's process: conv + bn + relu, with a frame of zeros."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import jax

from mlhood.jaxlab import network
from mlhood.jaxlab.operators import no_jax, with_jax


def own(conv2d: Callable, batch_norm: Callable, relu: Callable, *arrays: Any) -> Any:
    """By the notebook's operators."""
    return network.fused_block(SimpleNamespace(conv2d=conv2d, batch_norm=batch_norm, relu=relu), *arrays, padding=1)


def compiled(*arrays: Any) -> Any:
    """By JAX, as one program that is compiled once."""
    return _program()(*arrays)


def reference(*arrays: Any) -> Any:
    """By the package in NumPy."""
    return network.fused_block(no_jax, *arrays, padding=1)


@cache
def _program() -> Callable[..., Any]:
    return jax.jit(partial(network.fused_block, with_jax, padding=1))
