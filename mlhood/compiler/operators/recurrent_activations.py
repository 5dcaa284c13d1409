"""The activations of recurrent layers: their functions, and ONNX's lists of their names and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mlhood.compiler.hir.operator import require
from mlhood.compiler.operators.onnx_node import OnnxNode

Activation = tuple[Any, ...]  # the name, then alpha and beta, of which some have none, and some only the first
Array = Any  # of NumPy, or of JAX

# By name: the function of the module of array functions, x and the parameters; defaults of alpha and beta.
_FUNCTIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "Relu": (lambda xp, x: xp.maximum(x, 0), ()),
    "Tanh": (lambda xp, x: xp.tanh(x), ()),
    "Sigmoid": (lambda xp, x: 0.5 * xp.tanh(0.5 * x) + 0.5, ()),
    "Affine": (lambda xp, x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "LeakyRelu": (lambda xp, x, alpha: xp.where(x >= 0, x, alpha * x), (0.01,)),
    "ThresholdedRelu": (lambda xp, x, alpha: xp.where(x > alpha, x, xp.zeros_like(x)), (1.0,)),
    "ScaledTanh": (lambda xp, x, alpha, beta: alpha * xp.tanh(beta * x), (1.0, 1.0)),
    "HardSigmoid": (lambda xp, x, alpha, beta: xp.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "Elu": (lambda xp, x, alpha: xp.where(x >= 0, x, alpha * xp.expm1(xp.minimum(x, 0))), (1.0,)),
    "Softsign": (lambda xp, x: x / (1 + xp.abs(x)), ()),
    "Softplus": (lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)), ()),
}
_NAMES = {name.lower(): name for name in _FUNCTIONS}


def function_of(xp: Any, activation: Activation) -> Callable[[Array], Array]:
    """Return an activation as a function of an array of a module: NumPy, or jax.numpy."""
    name, *parameters = activation
    function = partial(_FUNCTIONS[name][0], xp)
    return lambda x: function(x, *parameters)


def check_activations(activations: tuple[Activation, ...], count: int) -> None:
    """Raise CompilerError unless there are as many activations as given, and all are known."""
    require(len(activations) == count, "wrong number of activations", expected=count, got=activations)
    for name, *parameters in activations:
        require(name in _FUNCTIONS, "unknown activation", expected=", ".join(_FUNCTIONS), got=name)
        wanted = len(_FUNCTIONS[name][1])
        require(len(parameters) == wanted, f"wrong number of parameters of {name}", expected=wanted, got=parameters)


def activations_from_onnx(source: OnnxNode, defaults: Sequence[str], directions: int) -> tuple[Activation, ...]:
    """Return the activations of an ONNX node, all of one direction, then those of the other.

    The lists of alphas and betas have an element for each activation that takes one, in turn; what they lack has the
    default. A list of activations for one direction serves both.

    Raises:
        CompilerError: An activation is unknown, or their number is wrong.
    """
    names, count = source.attribute("activations", ()) or tuple(defaults) * directions, len(defaults) * directions
    if directions == 2 and len(names) == len(defaults):
        names = names * 2
    enough = len(names) == count or (source.op_type == "RNN" and len(names) > count)  # its default has two
    require(enough, "wrong number of activations", expected=count, got=list(names))
    rest = [list(source.attribute(f"activation_{kind}", ())) for kind in ("alpha", "beta")]
    activations: list[Activation] = []
    for given in names[:count]:
        name = _NAMES.get(given.lower(), "")
        require(bool(name), "unknown activation", expected=", ".join(_FUNCTIONS), got=given)
        pairs = zip(rest, _FUNCTIONS[name][1], strict=False)
        activations.append((name, *(float(numbers.pop(0)) if numbers else default for numbers, default in pairs)))
    return tuple(activations)


def activations_to_onnx(activations: Sequence[Activation]) -> dict[str, Any]:
    """Return the attributes of an ONNX node for activations."""
    alphas = tuple(activation[1] for activation in activations if len(activation) > 1)
    betas = tuple(activation[2] for activation in activations if len(activation) > 2)
    names = tuple(activation[0] for activation in activations)
    return {"activations": names, "activation_alpha": alphas or None, "activation_beta": betas or None}
