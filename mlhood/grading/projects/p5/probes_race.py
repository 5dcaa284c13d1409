"""The timed computations of P5.3, run in the student's process: conv + bn + relu, with padding, and ResNet-18.

Compiled programs and weights are made once, and the judge keeps their handles: these functions are new in each request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def block_program() -> Callable[..., Any]:
    """Return the block as a program that is compiled at its first call."""
    return jax.jit(partial(network.fused_block, with_jax, padding=1))


def compiled(program: Callable[..., Any], *arrays: Any) -> Any:
    """Run the block with JAX, as this program, on arrays that are on the device as the table's are."""
    on_device = jax.device_put(arrays)
    return np.asarray(_repeated(lambda: jax.block_until_ready(program(*on_device))))


def reference(*arrays: Any) -> Any:
    """Run the block with the package's NumPy operators."""
    return _repeated(partial(network.fused_block, no_jax, *arrays, padding=1))


def prepared_network(seed: int) -> SimpleNamespace:
    """Return ResNet-18: its `weights`, and with these a `program` that is compiled at its first call."""
    weights = network.tree(resnet18(seed))
    return SimpleNamespace(weights=weights, program=jax.jit(partial(network.forward, with_jax, weights)))


def own_network(prepared: SimpleNamespace, operators: dict[str, Callable], image: np.ndarray) -> Any:
    """Run ResNet-18 with the notebook's operators."""
    return network.forward(SimpleNamespace(**operators), prepared.weights, image)


def compiled_network(prepared: SimpleNamespace, image: np.ndarray) -> Any:
    """Run ResNet-18 with JAX."""
    return np.asarray(prepared.program(jax.device_put(image)))


def reference_network(prepared: SimpleNamespace, image: np.ndarray) -> Any:
    """Run ResNet-18 with the package's NumPy operators."""
    return network.forward(no_jax, prepared.weights, image)


def _repeated(call: Callable[[], Any]) -> Any:
    """Call REPEATS times; return the last result."""
    for _ in range(REPEATS - 1):
        call()
    return call()
