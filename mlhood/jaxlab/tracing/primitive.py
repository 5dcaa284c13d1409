"""An operation of our own in JAX: fake quantisation, with all the rules that JAX asks for.

Fake quantisation gives a number back as int8 would have kept it, but as a float: scale * clip(round(x / scale), -128,
127). Its true derivative is 0 almost everywhere, so nothing can be trained through it. It gets a derivative of its own.

A primitive is a name, and one rule for each thing that JAX does with it. All of the API is public in JAX 0.10:

| rule | what asks | where it is registered |
|---|---|---|
| value | a call on arrays | `jax.extend.core.Primitive.def_impl` |
| abstract evaluation: shape and type | every trace | `Primitive.def_abstract_eval`, with `jax.core.ShapedArray` |
| lowering: StableHLO | `jit` | `jax.interpreters.mlir.register_lowering`; `mlir.lower_fun` writes it |
| derivative | `jvp`, `grad`, `linearize` | `jax.interpreters.ad.defjvp` |
| batching | `vmap` | `jax.interpreters.batching.primitive_batchers` |

No rule of transposition is needed, although `grad` transposes: it transposes the derivative, and that is made of JAX's
own operations, each of which has one.

Here the scale is an operand: it can be traced, learned and batched. Where it is a fixed float it is better a
parameter of the primitive, `fake_quantize_p.bind(x, scale=0.1)`: every rule then gets it by keyword, it is written
in the jaxpr and compiled into the code, and there is neither a derivative by it nor a batch of it.

Sources: Y. Bengio, N. Leonard, A. Courville, "Estimating or propagating gradients through stochastic neurons", 2013
(straight-through); S. K. Esser et al., "Learned step size quantization", ICLR 2020, equations 1 to 3 and 5.

>>> jax.make_jaxpr(fake_quantize)(jnp.ones(3), 0.1)
>>> jax.grad(lambda scale: jnp.sum((fake_quantize(x, scale) - x) ** 2))(0.1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from mlhood.errors import XlaError

LOW, HIGH = -128, 127  # of int8

fake_quantize_p = Primitive("fake_quantize")


def fake_quantize(x: Any, scale: Any) -> jax.Array:
    """Round to what int8 can hold: scale * clip(round(x / scale), -128, 127), halves to even.

    Derivatives, where x / scale lies in [-128, 127] and where it does not:

    1. by x: 1 and 0, as if nothing were rounded (straight through);
    2. by the scale: round(x / scale) - x / scale and the limit that was met. Esser's factor, which makes the steps of
       scales smaller, is left to the optimiser.

    Args:
        x: Floats of any shape.
        scale: Positive (which is not checked: 0 gives not-a-number); a number, or an array that broadcasts to x, such
            as [C, 1, 1] for a scale a channel. Taken as x's type.

    Returns:
        x's shape and type.

    Raises:
        XlaError: x is not of floats, or the scale does not broadcast to it.
    """
    x = jnp.asarray(x)
    scale = jnp.asarray(scale, x.dtype)
    _check(x, scale)
    return fake_quantize_p.bind(x, scale)


def arithmetic(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Compute the same of JAX's own operations, whose derivative by x is 0: what the primitive is lowered to."""
    return scale * jnp.clip(jnp.round(x / scale), LOW, HIGH)


def _check(x: Any, scale: Any) -> None:
    """Check two arrays, or the types of two that are traced."""
    if not jnp.issubdtype(x.dtype, jnp.floating) or scale.dtype != x.dtype:
        raise XlaError(
            "fake quantisation is for floats, and its scale is of the same type",
            where="fake_quantize",
            expected="two of float32, float16, ...",
            got=f"x of {x.dtype}, scale of {scale.dtype}",
        )
    behind = x.shape[x.ndim - scale.ndim :]
    if scale.ndim > x.ndim or any(one not in (1, size) for one, size in zip(scale.shape, behind, strict=True)):
        raise XlaError(
            "the scale does not broadcast to x",
            where="fake_quantize",
            expected="() for one scale, or x's last axes, each as long as in x or 1",
            got=f"x {list(x.shape)}, scale {list(scale.shape)}",
            todo="for a scale a channel of [N, C, H, W] give it the shape [C, 1, 1]",
        )


@fake_quantize_p.def_impl
def _value(x: jax.Array, scale: jax.Array) -> jax.Array:
    _check(x, scale)
    return arithmetic(x, scale)


@fake_quantize_p.def_abstract_eval
def _type(x: ShapedArray, scale: ShapedArray) -> ShapedArray:
    _check(x, scale)
    return x.update(weak_type=False)  # where it lies on a mesh is x's


mlir.register_lowering(fake_quantize_p, mlir.lower_fun(arithmetic, multiple_results=False))


def _by_x(tangent: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
    return jnp.where(_inside(x / scale), tangent, 0)


def _by_scale(tangent: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
    steps = x / scale
    kept = jnp.clip(jnp.round(steps), LOW, HIGH)
    return tangent * jnp.where(_inside(steps), kept - steps, kept)


def _inside(steps: jax.Array) -> jax.Array:
    return (steps >= LOW) & (steps <= HIGH)


ad.defjvp(fake_quantize_p, _by_x, _by_scale)


def _batched(operands: Sequence[jax.Array], axes: Sequence[int | None]) -> tuple[jax.Array, int]:
    """Bind the primitive once for a whole batch, whose axis comes first.

    A scale without a batch still broadcasts to the last axes of x. One with a batch needs axes of length 1 between it
    and its own, and an x that has the batch, too.
    """
    x, scale = operands
    at_x, at_scale = axes
    if at_x is not None:
        x = jnp.moveaxis(x, at_x, 0)
    if at_scale is None:
        return fake_quantize_p.bind(x, scale), 0
    scale = jnp.moveaxis(scale, at_scale, 0)
    if at_x is None:
        x = jnp.broadcast_to(x, (len(scale), *x.shape))
    between = (1,) * (x.ndim - scale.ndim)
    return fake_quantize_p.bind(x, scale.reshape(len(scale), *between, *scale.shape[1:])), 0


batching.primitive_batchers[fake_quantize_p] = _batched
