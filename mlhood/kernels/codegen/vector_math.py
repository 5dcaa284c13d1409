"""Mathematical functions of vectors of float32, of any number of lanes, without tables or branches.

A function reduces its argument to a small range and evaluates a polynomial there (Muller, Elementary Functions, 2016).
The polynomials of exp and log are those of Cephes (Moshier, `expf.c` and `logf.c`, 1992), that of erf is a minimax fit
of x P(x^2) / Q(x^2) on [0, 3.93] with a relative error of 2e-8. With rounding, the relative error of exp, expm1, log,
log1p, erf, tanh and sigmoid stays below 4e-7 for all arguments, denormal results included. NaN propagates, and the
values at infinities are those of NumPy.

`FUNCTIONS` has the functions of one vector by ONNX's names; their attributes follow the vector, in the order of the
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import INT32, FunctionBuilder

_EXP = (0.5000000120, 0.16666665459, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)
_LOG = (
    *(3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1),
    *(-1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2),
)
_ERF_P = (1.12837915, 0.190753860, 5.27858044e-2, 3.77818832e-3, 2.84754499e-4, 2.04190995e-6)
_ERF_Q = (1.0, 0.502383934, 0.114244668, 1.49946005e-2, 1.16482727e-3, 3.80006140e-5)
_ERF_IS_ONE = 4.1  # erf is 1 from 3.93 on; here the quotient is above 1, by more than all roundings
_LOG2_E = 1.44269504088896341
_LN2 = (0.693359375, -2.12194440e-4)  # high and low part: products of the high one with exponents are exact
_TO_INTEGER = 1.5 * 2**23  # a float32 near this has no fraction, and its last bits are the integer
_MANTISSA_BITS = 23
_BIAS = 127  # of the exponent
_SQRT_HALF_BITS = 0x3F3504F3
_SMALLEST_NORMAL = 2.0**-126

Combine = Callable[[FunctionBuilder, Any, Any], Any]


def constant(like: Any, value: float) -> Any:
    """Return a vector of the same type as `like`, with the value in every lane."""
    return ir.Constant(like.type, [float(value)] * like.type.count)


def _integers(like: Any, value: int) -> Any:
    return ir.Constant(ir.VectorType(INT32, like.type.count), [value] * like.type.count)


def _polynomial(code: FunctionBuilder, x: Any, coefficients: Sequence[float]) -> Any:
    """Return c[0] + c[1] x + c[2] x^2 + ..., by Horner's scheme."""
    total = constant(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = code.fma(total, x, constant(x, coefficient))
    return total


def _intrinsic(code: FunctionBuilder, name: str, *operands: Any) -> Any:
    kind = operands[0].type
    symbol = f"llvm.{name}.v{kind.count}f32"
    signature = ir.FunctionType(kind, [kind] * len(operands))
    callee = code.module.globals.get(symbol) or ir.Function(code.module, signature, symbol)
    return code.builder.call(callee, operands)


def across_lanes(code: FunctionBuilder, combine: Combine, vector: Any) -> Any:
    """Return the reduction of a vector's elements, in all lanes."""
    lanes = vector.type.count
    distance = lanes // 2
    while distance:
        partner = code.shuffle(vector, vector, [lane ^ distance for lane in range(lanes)])
        vector = combine(code, vector, partner)
        distance //= 2
    return vector


# -- bounds and signs


def absolute(code: FunctionBuilder, x: Any) -> Any:
    """Return |x|."""
    return _intrinsic(code, "fabs", x)


def negative(code: FunctionBuilder, x: Any) -> Any:
    """Return -x."""
    return code.builder.fneg(x)


def maximum(code: FunctionBuilder, a: Any, b: Any) -> Any:
    """Return the larger of the two; NaN in either propagates, whereas `code.maximum` ignores it in the bound."""
    larger = code.builder.select(code.builder.fcmp_ordered(">", a, b), a, b)
    return code.builder.select(code.builder.fcmp_unordered("uno", a, a), a, larger)


def minimum(code: FunctionBuilder, a: Any, b: Any) -> Any:
    """Return the smaller of the two; NaN in either propagates, whereas `code.minimum` ignores it in the bound."""
    smaller = code.builder.select(code.builder.fcmp_ordered("<", a, b), a, b)
    return code.builder.select(code.builder.fcmp_unordered("uno", a, a), a, smaller)


def clip(code: FunctionBuilder, x: Any, low: float | None = None, high: float | None = None) -> Any:
    """Return min(max(x, low), high); None means no limit."""
    if low is not None:
        x = code.maximum(x, constant(x, low))
    return x if high is None else code.minimum(x, constant(x, high))


def relu(code: FunctionBuilder, x: Any) -> Any:
    """Return max(x, 0)."""
    return clip(code, x, 0)


def prelu(code: FunctionBuilder, x: Any, slope: Any) -> Any:
    """Return slope x where x < 0, x elsewhere; the slope is a vector."""
    negative = code.builder.fcmp_ordered("<", x, constant(x, 0))
    return code.builder.select(negative, code.builder.fmul(x, slope), x)


def leaky_relu(code: FunctionBuilder, x: Any, alpha: float = 0.01) -> Any:
    """Return alpha x where x < 0, x elsewhere."""
    return prelu(code, x, constant(x, alpha))


# -- algebraic functions


def sqrt(code: FunctionBuilder, x: Any) -> Any:
    """Return the square root; NaN of negative numbers."""
    return _intrinsic(code, "sqrt", x)


def reciprocal(code: FunctionBuilder, x: Any) -> Any:
    """Return 1 / x."""
    return code.builder.fdiv(constant(x, 1), x)


def hard_sigmoid(code: FunctionBuilder, x: Any, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """Return alpha x + beta, clamped to [0, 1]."""
    return clip(code, code.fma(x, constant(x, alpha), constant(x, beta)), 0, 1)


def hard_swish(code: FunctionBuilder, x: Any) -> Any:
    """Return x times the hard sigmoid with alpha = 1/6 and beta = 0.5."""
    return code.builder.fmul(x, hard_sigmoid(code, x, 1 / 6, 0.5))


# -- exponentials


def _reduce(code: FunctionBuilder, x: Any) -> tuple[Any, Any]:
    """Split |x| < 2^22 into n ln 2 + r with |r| <= ln(2) / 2; return n as integers, and exp(r) - 1."""
    builder = code.builder
    shifted = code.fma(x, constant(x, _LOG2_E), constant(x, _TO_INTEGER))
    whole = builder.fsub(shifted, constant(x, _TO_INTEGER))
    kind = ir.VectorType(INT32, x.type.count)
    n = builder.sub(builder.bitcast(shifted, kind), builder.bitcast(constant(x, _TO_INTEGER), kind))
    r = code.fma(whole, constant(x, -_LN2[0]), x)
    r = code.fma(whole, constant(x, -_LN2[1]), r)
    return n, code.fma(builder.fmul(r, r), _polynomial(code, r, _EXP), r)


def _power_of_two(code: FunctionBuilder, n: Any, kind: Any) -> Any:
    """Return 2^n for integers n within the exponents of normal numbers."""
    builder = code.builder
    biased = builder.add(n, ir.Constant(n.type, [_BIAS] * n.type.count))
    return builder.bitcast(builder.shl(biased, ir.Constant(n.type, [_MANTISSA_BITS] * n.type.count)), kind)


def exp(code: FunctionBuilder, x: Any) -> Any:
    """Return e^x."""
    builder = code.builder
    n, expm1_r = _reduce(code, clip(code, x, -105, 89))  # beyond, the result is 0 or infinite
    # two factors: 2^n is not a normal number where the result is denormal, or just below infinity
    half = builder.ashr(n, _integers(x, 1))
    y = builder.fadd(expm1_r, constant(x, 1))
    for exponent in (half, builder.sub(n, half)):
        y = builder.fmul(y, _power_of_two(code, exponent, x.type))
    return y


def exp_of_nonpositive(code: FunctionBuilder, x: Any) -> Any:
    """Return e^x of x <= 0, as a softmax needs it; 0 where that would not be a normal number."""
    builder = code.builder
    n, expm1_r = _reduce(code, x)
    y = builder.fmul(builder.fadd(expm1_r, constant(x, 1)), _power_of_two(code, n, x.type))
    return builder.select(builder.fcmp_ordered("<", x, constant(x, -87)), constant(x, 0), y)


def expm1(code: FunctionBuilder, x: Any) -> Any:
    """Return e^x - 1, accurate near 0."""
    builder = code.builder
    n, expm1_r = _reduce(code, clip(code, x, -18, 89))  # below, the result is -1
    half_scale = _power_of_two(code, builder.sub(n, _integers(x, 1)), x.type)  # 2^128 is infinite
    y = code.fma(half_scale, expm1_r, builder.fsub(half_scale, constant(x, 0.5)))
    return builder.fadd(y, y)


def log(code: FunctionBuilder, x: Any) -> Any:
    """Return the natural logarithm: -inf of 0, NaN of negative numbers."""
    builder = code.builder
    denormal = builder.fcmp_ordered("<", x, constant(x, _SMALLEST_NORMAL))
    normal = builder.select(denormal, builder.fmul(x, constant(x, 2.0**25)), x)
    bits = builder.bitcast(normal, ir.VectorType(INT32, x.type.count))
    shift = _integers(x, _MANTISSA_BITS)
    n = builder.ashr(builder.sub(bits, _integers(x, _SQRT_HALF_BITS)), shift)
    mantissa = builder.bitcast(builder.sub(bits, builder.shl(n, shift)), x.type)  # in [sqrt(0.5), sqrt(2))
    exponent = builder.sitofp(n, x.type)
    exponent = builder.fadd(exponent, builder.select(denormal, constant(x, -25), constant(x, 0)))
    y = _log_near_one(code, builder.fsub(mantissa, constant(x, 1)), exponent)
    y = builder.select(builder.fcmp_ordered("<", x, constant(x, math.inf)), y, x)
    y = builder.select(builder.fcmp_ordered("==", x, constant(x, 0)), constant(x, -math.inf), y)
    return builder.select(builder.fcmp_ordered("<", x, constant(x, 0)), constant(x, math.nan), y)


def _log_near_one(code: FunctionBuilder, f: Any, exponent: Any) -> Any:
    """Return log(1 + f) + exponent ln 2."""
    square = code.builder.fmul(f, f)
    y = code.builder.fmul(code.builder.fmul(f, square), _polynomial(code, f, _LOG))
    y = code.fma(exponent, constant(f, _LN2[1]), y)
    y = code.fma(square, constant(f, -0.5), y)
    return code.fma(exponent, constant(f, _LN2[0]), code.builder.fadd(f, y))


def log1p(code: FunctionBuilder, x: Any) -> Any:
    """Return log(1 + x) for finite x >= 0, accurate near 0: what 1 + x rounds off is added to first order."""
    builder = code.builder
    total = builder.fadd(x, constant(x, 1))
    lost = builder.fsub(x, builder.fsub(total, constant(x, 1)))
    return builder.fadd(log(code, total), builder.fdiv(lost, total))


def sigmoid(code: FunctionBuilder, x: Any) -> Any:
    """Return 1 / (1 + e^-x)."""
    builder = code.builder
    e = exp(code, negative(code, absolute(code, x)))  # at most 1: it cannot overflow
    numerator = builder.select(builder.fcmp_ordered("<", x, constant(x, 0)), e, constant(x, 1))
    return builder.fdiv(numerator, builder.fadd(e, constant(x, 1)))


def silu(code: FunctionBuilder, x: Any) -> Any:
    """Return x / (1 + e^-x)."""
    return code.builder.fmul(x, sigmoid(code, x))


def tanh(code: FunctionBuilder, x: Any) -> Any:
    """Return the hyperbolic tangent."""
    magnitude = absolute(code, x)
    e = expm1(code, code.builder.fmul(magnitude, constant(x, -2)))
    y = code.builder.fdiv(e, code.builder.fadd(e, constant(x, 2)))
    return _intrinsic(code, "copysign", y, x)


def erf(code: FunctionBuilder, x: Any) -> Any:
    """Return the error function."""
    x = clip(code, x, -_ERF_IS_ONE, _ERF_IS_ONE)
    square = code.builder.fmul(x, x)
    numerator = code.builder.fmul(x, _polynomial(code, square, _ERF_P))
    return clip(code, code.builder.fdiv(numerator, _polynomial(code, square, _ERF_Q)), -1, 1)


def softplus(code: FunctionBuilder, x: Any) -> Any:
    """Return log(1 + e^x), without overflow."""
    e = exp(code, negative(code, absolute(code, x)))
    return code.builder.fadd(relu(code, x), log1p(code, e))


def elu(code: FunctionBuilder, x: Any, alpha: float = 1.0, gamma: float = 1.0) -> Any:
    """Return gamma x where x > 0, gamma alpha (e^x - 1) elsewhere; Selu has other values of alpha and gamma."""
    builder = code.builder
    below = builder.fmul(expm1(code, code.minimum(x, constant(x, 0))), constant(x, alpha))
    y = builder.select(builder.fcmp_ordered(">", x, constant(x, 0)), x, below)
    return y if gamma == 1 else builder.fmul(y, constant(x, gamma))


def gelu(code: FunctionBuilder, x: Any, approximate: str = "none") -> Any:
    """Return x Phi(x), by the error function, or by tanh if `approximate` is "tanh" (arXiv 1606.08415)."""
    builder = code.builder
    if approximate == "tanh":
        cube = builder.fmul(builder.fmul(x, x), x)
        inner = builder.fmul(code.fma(cube, constant(x, 0.044715), x), constant(x, math.sqrt(2 / math.pi)))
        inner = tanh(code, inner)
    else:
        inner = erf(code, builder.fmul(x, constant(x, math.sqrt(0.5))))
    return builder.fmul(builder.fmul(x, constant(x, 0.5)), builder.fadd(inner, constant(x, 1)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Abs": absolute,
    "Clip": clip,
    "Elu": elu,
    "Erf": erf,
    "Exp": exp,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": hard_swish,
    "LeakyRelu": leaky_relu,
    "Log": log,
    "Neg": negative,
    "Reciprocal": reciprocal,
    "Relu": relu,
    "Sigmoid": sigmoid,
    "Silu": silu,
    "Softplus": softplus,
    "Sqrt": sqrt,
    "Tanh": tanh,
}
