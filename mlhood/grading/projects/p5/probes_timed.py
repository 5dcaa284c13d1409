"""The timed computations of P5.3, made in the student's process: conv + bn + relu, with padding, and ResNet-18."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from mlhood.jaxlab.operators import layouts, network, with_jax
from mlhood.jaxlab.operators.cases import resnet18

Notebook = dict[str, Any] | None  # its `operators` and their `layout`; None for JAX


def timed_block(notebook: Notebook, *weights: np.ndarray) -> Callable[[Any], Any]:
    """Return conv + bn + relu as a function of an image, for all other arguments, which JAX has on its device."""
    if notebook:
        return lambda x: network.fused_block(_operators(notebook), x, *weights, padding=1)  # pyright: ignore[reportArgumentType]
    program, placed = compiled(partial(network.fused_block, with_jax, padding=1)), jax.device_put(weights)
    return lambda x: program(x, *placed)


def timed_network(notebook: Notebook, seed: int) -> Callable[[Any], Any]:
    """Return ResNet-18 with random weights, which are constants for JAX, as a function of an image."""
    weights = network.tree(resnet18(seed))
    if notebook:
        return partial(network.forward, _operators(notebook), weights)
    return compiled(partial(network.forward, with_jax, weights))


def _operators(notebook: dict[str, Any]) -> Any:
    """Return the notebook's operators, to be called with the arrays of the table, whatever their own layout is."""
    return layouts.adapted(SimpleNamespace(**notebook["operators"]), layouts.Layout(*notebook["layout"]))


def compiled(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Return a function that JAX compiles at its first call, and that waits for its result.

    It raises RuntimeError if JAX traces it again, or does not compile it.
    """
    traces = 0

    def counted(*arguments: Any) -> Any:
        nonlocal traces
        traces += 1
        return function(*arguments)

    program = jax.jit(counted)

    def run(*arguments: Any) -> np.ndarray:
        result = np.asarray(program(*arguments))
        if traces != 1:
            raise RuntimeError(
                "JAX's side is not compiled once: leave `jax.jit` and the package's functions as they are"
            )
        return result

    return run
