"""The timed computations of P5.3, run in the student's process: conv + bn + relu, with padding, and ResNet-18."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from mlhood.jaxlab.operators import network, no_jax, with_jax
from mlhood.jaxlab.operators.cases import resnet18

REPEATS = 8  # of the block in one call, so that it takes longer than the round trip


def own(conv2d: Callable, batch_norm: Callable, relu: Callable, *arrays: Any) -> Any:
    """Run the block with the notebook's operators."""
    operators = SimpleNamespace(conv2d=conv2d, batch_norm=batch_norm, relu=relu)
    return _repeated(partial(network.fused_block, operators, *arrays, padding=1))


def compiled(*arrays: Any) -> Any:
    """Run the block with JAX, as a program compiled once, on arrays that are on the device as the table's are."""
    program, on_device = _program(), jax.device_put(arrays)
    return np.asarray(_repeated(lambda: jax.block_until_ready(program(*on_device))))


def reference(*arrays: Any) -> Any:
    """Run the block with the package's NumPy operators."""
    return _repeated(partial(network.fused_block, no_jax, *arrays, padding=1))


def own_network(operators: dict[str, Callable], seed: int, image: np.ndarray) -> Any:
    """Run ResNet-18 with the notebook's operators."""
    return network.forward(SimpleNamespace(**operators), _weights(seed), image)


def compiled_network(seed: int, image: np.ndarray) -> Any:
    """Run ResNet-18 with JAX, as a program compiled with its weights."""
    return np.asarray(_network(seed)(jax.device_put(image)))


def reference_network(seed: int, image: np.ndarray) -> Any:
    """Run ResNet-18 with the package's NumPy operators."""
    return network.forward(no_jax, _weights(seed), image)


def _repeated(call: Callable[[], Any]) -> Any:
    """Call REPEATS times; return the last result."""
    for _ in range(REPEATS - 1):
        call()
    return call()


@cache
def _program() -> Callable[..., Any]:
    return jax.jit(partial(network.fused_block, with_jax, padding=1))


@cache
def _weights(seed: int) -> network.Params:
    return network.tree(resnet18(seed))


@cache
def _network(seed: int) -> Callable[..., Any]:
    return jax.jit(partial(network.forward, with_jax, _weights(seed)))
