"""A new primitive for JAX: fake quantisation, with all the rules that JAX needs.

Fake quantisation rounds a number to what int8 can represent, but returns a float: scale * clip(round(x / scale), -128,
127). Its true derivative is 0 almost everywhere, so nothing can be trained through it; it gets a derivative rule of its
own.

A primitive is a name and one rule per interpreter and transformation. All of the API is public in JAX 0.10:

| rule | used by | registered with |
|---|---|---|
| evaluation | a call on arrays | `jax.extend.core.Primitive.def_impl` |
| abstract evaluation: shape and dtype | every trace | `Primitive.def_abstract_eval`, with `jax.core.ShapedArray` |
| lowering to StableHLO | `jit` | `jax.interpreters.mlir.register_lowering`; `mlir.lower_fun` generates it |
| JVP | `jvp`, `grad`, `linearize` | `jax.interpreters.ad.defjvp` |
| batching | `vmap` | `jax.interpreters.batching.primitive_batchers` |

It needs no transpose rule, although `grad` transposes: what is transposed is the JVP, which consists of JAX's own
operations, and each of those has one.

Here the scale is an operand: it can be traced, learned and batched. A scale that is a fixed float is better a parameter
of the primitive, `fake_quantize_p.bind(x, scale=0.1)`: each rule then gets it as a keyword, it appears in the jaxpr and
is compiled in as a constant, and there is neither a derivative with respect to it nor a batch of it.

Sources: Y. Bengio, N. Leonard, A. Courville, "Estimating or propagating gradients through stochastic neurons", 2013
(straight-through estimator); S. K. Esser et al., "Learned step size quantization", ICLR 2020, equations 1 to 3 and 5.

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
    """Round to the values of int8: scale * clip(round(x / scale), -128, 127), ties to even.

    Derivatives, for x / scale inside [-128, 127] and outside:

    1. with respect to x: 1 inside and 0 outside, as if nothing were rounded (straight-through estimator);
    2. with respect to the scale: round(x / scale) - x / scale inside, the limit that was exceeded outside. Esser's
       factor for smaller steps of the scale is left to the optimiser.

    Args:
        x: Floats of any shape.
        scale: Positive (not checked: 0 gives NaN); a scalar, or an array that broadcasts to x, such as [C, 1, 1] for
            one scale per channel. Converted to x's dtype.

    Returns:
        An array of x's shape and dtype.

    Raises:
        XlaError: x is not floating point, or the scale does not broadcast to it.
    """
    x = jnp.asarray(x)
    scale = jnp.asarray(scale, x.dtype)
    _check(x, scale)
    return fake_quantize_p.bind(x, scale)


def decomposed(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Compute the same with JAX's own operations, whose derivative with respect to x is 0; what is lowered."""
    return scale * jnp.clip(jnp.round(x / scale), LOW, HIGH)


def _check(x: Any, scale: Any) -> None:
    """Check two arrays, or the abstract values of two tracers."""
    if not jnp.issubdtype(x.dtype, jnp.floating) or scale.dtype != x.dtype:
        raise XlaError(
            "fake quantisation is for floats, and its scale has the same dtype",
            where="fake_quantize",
            expected="two of float32, float16, ...",
            got=f"x of {x.dtype}, scale of {scale.dtype}",
        )
    aligned = x.shape[x.ndim - scale.ndim :]
    if scale.ndim > x.ndim or any(a not in (1, b) for a, b in zip(scale.shape, aligned, strict=True)):
        raise XlaError(
            "the scale does not broadcast to x",
            where="fake_quantize",
            expected="() for one scale, or x's last axes, each as long as in x or 1",
            got=f"x {list(x.shape)}, scale {list(scale.shape)}",
            todo="for one scale per channel of [N, C, H, W] give it the shape [C, 1, 1]",
        )


@fake_quantize_p.def_impl
def _evaluate(x: jax.Array, scale: jax.Array) -> jax.Array:
    _check(x, scale)
    return decomposed(x, scale)


@fake_quantize_p.def_abstract_eval
def _abstract_eval(x: ShapedArray, scale: ShapedArray) -> ShapedArray:
    _check(x, scale)
    return x.update(weak_type=False)  # keeps x's sharding


mlir.register_lowering(fake_quantize_p, mlir.lower_fun(decomposed, multiple_results=False))


def _jvp_scale(tangent: jax.Array, x: jax.Array, scale: jax.Array) -> jax.Array:
    steps = x / scale
    quantized = jnp.clip(jnp.round(steps), LOW, HIGH)
    return tangent * jnp.where(_in_range(steps), quantized - steps, quantized)


def _in_range(steps: jax.Array) -> jax.Array:
    return (steps >= LOW) & (steps <= HIGH)


ad.defjvp(fake_quantize_p, lambda tangent, x, scale: jnp.where(_in_range(x / scale), tangent, 0), _jvp_scale)


def _batch(operands: Sequence[jax.Array], axes: Sequence[int | None]) -> tuple[jax.Array, int]:
    """Bind the primitive once for a whole batch, moving the batch axis to the front.

    An unbatched scale still broadcasts to the last axes of x. A batched one needs axes of length 1 between its batch
    axis and its own axes, and an x that is batched, too.
    """
    (x, scale), (x_axis, scale_axis) = operands, axes
    if x_axis is not None:
        x = jnp.moveaxis(x, x_axis, 0)
    if scale_axis is None:
        return fake_quantize_p.bind(x, scale), 0
    scale = jnp.moveaxis(scale, scale_axis, 0)
    if x_axis is None:
        x = jnp.broadcast_to(x, (len(scale), *x.shape))
    ones = (1,) * (x.ndim - scale.ndim)
    return fake_quantize_p.bind(x, scale.reshape(len(scale), *ones, *scale.shape[1:])), 0


batching.primitive_batchers[fake_quantize_p] = _batch
