"""Small functions of numbers; a bundle has those that its operators call.

In a template, T is the element type, E the ending of its name, F that of functions of <math.h>, and O the largest and M
the smallest number. Each helper may call those before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from mlhood.compiler.backends.c.kernel import SUFFIXES, TYPES, number

_TEMPLATES: dict[str, str] = {
    "max": "/* NaN if either is. */\nstatic T max_E(T a, T b)\n{\n    return a > b || a != a ? a : b;\n}",
    "min": "/* NaN if either is. */\nstatic T min_E(T a, T b)\n{\n    return a < b || a != a ? a : b;\n}",
    "relu": "static T relu_E(T x)\n{\n    return x > 0 || x != x ? x : 0;\n}",
    "leaky_relu": "static T leaky_relu_E(T x, T alpha)\n{\n    return x < 0 ? x * alpha : x;\n}",
    "sigmoid": """/* exp of no positive number, so that it cannot overflow. */
static T sigmoid_E(T x)
{
    const T power = expF(x < 0 ? x : -x);
    return (x < 0 ? power : 1) / (1 + power);
}""",
    "hard_swish": "static T hard_swish_E(T x)\n{\n    return x * max_E(0, min_E(1, x / 6 + (T)0.5));\n}",
    "softplus": "static T softplus_E(T x)\n{\n    return max_E(x, 0) + log1pF(expF(-fabsF(x)));\n}",
    "elu": """static T elu_E(T x, T alpha, T gamma)
{
    return gamma * (x > 0 ? x : alpha * expm1F(min_E(x, 0)));
}""",
    "gelu": "static T gelu_E(T x)\n{\n    return (T)0.5 * x * (1 + erfF(x * (T)0.70710678118654752));\n}",
    "gelu_tanh": """static T gelu_tanh_E(T x)
{
    return (T)0.5 * x * (1 + tanhF((T)0.79788456080286536 * (x + (T)0.044715 * x * x * x)));
}""",
    "sign": "static T sign_E(T x)\n{\n    return x > 0 ? 1 : x < 0 ? -1 : x;\n}",
}
_INTEGER_TEMPLATES: dict[str, str] = {
    "max": "static T max_E(T a, T b)\n{\n    return a > b ? a : b;\n}",
    "min": "static T min_E(T a, T b)\n{\n    return a < b ? a : b;\n}",
    "divide": """/* Towards zero; 0 where the divisor is. The quotient of the smallest number by -1 wraps around. */
static T divide_E(T a, T b)
{
    if (b == 0)
        return 0;
    return b == (T)-1 && (T)-1 < (T)1 ? (T)(0 - (uint64_t)a) : (T)(a / b);
}""",
}
_SATURATE = """/* A real as T: limited to its range, rounded towards zero; NaN becomes the smallest. */
static T to_E(double x)
{
    return !(x > M) ? LOWEST : x >= O ? LARGEST : (T)x;
}"""
_ROUND = """/* Sums of integers times multipliers, shifted right: the nearest integer, halves up. */
static int64_t round_shift(int64_t total, int shift)
{
    return (total + ((INT64_C(1) << shift) >> 1)) >> shift;
}"""
_CLAMP = """/* The upper limit wins where the lower one is above it. */
static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    const int64_t y = x < low ? low : x;
    return y > high ? high : y;
}"""
_PLAIN = {"round_shift": _ROUND, "clamp": _CLAMP}


def _of_element(template: str, element: str) -> str:
    words = {"T": TYPES[element], "E": SUFFIXES[element], "F": "f" if element == "float32" else ""}
    if element not in ("float32", "float64"):
        low, high = (0, 1) if element == "bool" else (np.iinfo(element).min, np.iinfo(element).max)
        words |= {"M": f"{float(low)!r}", "O": f"{float(high)!r}"}
        words |= {"LOWEST": number(low, element), "LARGEST": number(high, element)}
    text = re.sub(r"\b(T|M|O|LOWEST|LARGEST)\b", lambda match: words[match[1]], template)
    text = re.sub(r"(?<=_)E\b", words["E"], text)
    return re.sub(r"\b([a-z0-9]+)F\b", lambda match: match[1] + words["F"], text)


def _all() -> dict[str, str]:
    helpers = dict(_PLAIN)
    for element in TYPES:
        if element == "bool":
            continue
        real = element in ("float32", "float64")
        for name, template in (_TEMPLATES if real else _INTEGER_TEMPLATES).items():
            helpers[f"{name}_{SUFFIXES[element]}"] = _of_element(template, element)
        if not real:
            helpers[f"to_{SUFFIXES[element]}"] = _of_element(_SATURATE, element)
    return helpers


HELPERS = _all()
_WORD = re.compile(r"\b[a-z]\w*(?=\()")


def used_helpers(texts: Iterable[str]) -> list[str]:
    """Return the helpers that texts call, and those which these call, in an order in which each is defined first."""
    wanted: set[str] = set()
    stack = list(texts)
    while stack:
        new = (set(_WORD.findall(stack.pop())) & HELPERS.keys()) - wanted
        wanted |= new
        stack += [HELPERS[name] for name in new]
    return [text for name, text in HELPERS.items() if name in wanted]
