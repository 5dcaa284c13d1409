"""One instruction as a function of C99: element types and numbers, parameters, loops over axes, and helpers.

Helpers are small functions of numbers; a bundle has those that its operators call. In their templates, T is the element
type, E the ending of its name, F that of functions of <math.h>, and O the largest and M the smallest number. Each
helper may call those before it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.errors import CompilerError

# The element type in C, and the ending of helper functions for it.
TYPES: dict[str, str] = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
SUFFIXES: dict[str, str] = {
    name: {"f": "f", "i": "i", "u": "u", "b": "u"}[np.dtype(name).kind] + str(8 * np.dtype(name).itemsize)
    for name in TYPES
}
_WIDTH = 110  # of a line of numbers
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


def number(value: float | int | bool | np.generic, element: str) -> str:
    """Return a number of an element type as a constant of C, which a C compiler reads back bit for bit."""
    if element in ("float32", "float64"):
        return _real(float(value), element)
    integer = int(value)
    if element == "uint64" or integer > 2**63 - 1:
        return f"UINT64_C({integer})"
    if integer == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    if -(2**31) < integer < 2**31:
        return str(integer)
    return f"INT64_C({integer})"


def _real(value: float, element: str) -> str:
    with np.errstate(over="ignore"):
        value = float(np.float32(value)) if element == "float32" else value
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}" if element == "float32" else repr(value)
    text = text if set(text) & set(".e") else text + ".0"
    return text + "f" if element == "float32" else text


def lines_of(numbers: Iterable[str]) -> list[str]:
    """Return numbers, separated by commas, as lines."""
    lines, line = [], ""
    for text in numbers:
        if len(line) + len(text) > _WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += text + ", "
    return [*lines, line.rstrip().rstrip(",")] if line else lines


def table(name: str, values: Iterable[float | int], element: str) -> list[str]:
    """Return a static constant array, as lines."""
    texts = [number(value, element) for value in values]
    rows = [f"    {line}" for line in lines_of(texts)]
    if len(rows) == 1:
        return [f"static const {TYPES[element]} {name}[{len(texts)}] = {{{rows[0].strip()}}};"]
    return [f"static const {TYPES[element]} {name}[{len(texts)}] = {{", *rows, "};"]


Lines = list[str]


Strides = tuple[int, ...]


@dataclass(frozen=True)
class CKernel:
    """What a rule is given: an operator, and the types of its operands, without dynamic axes.

    Args:
        operator: The operator, whose attributes its rule reads.
        inputs: The inputs' types; None for one that is left out.
        results: The results' types.
        constants: The inputs' elements where they are constants, None elsewhere.
    """

    operator: Any
    inputs: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]
    constants: tuple[np.ndarray | None, ...]

    @property
    def x(self) -> TensorType:
        """The type of the first input."""
        return self.input(0)

    @property
    def y(self) -> TensorType:
        """The type of the first result."""
        return self.results[0]

    @property
    def names(self) -> list[str]:
        """The names of the inputs in C: those of the operator's reference semantics."""
        typed = type(self.operator).evaluate_typed is not Operator.evaluate_typed
        function = self.operator.evaluate_typed if typed else self.operator.evaluate
        names = [name for name in inspect.signature(function).parameters if name != "types"]
        names = names if len(names) > 1 or len(self.inputs) == 1 else []
        return [names[i] if i < len(names) else f"x{i}" for i in range(len(self.inputs))]

    def input(self, position: int) -> TensorType:
        """Return the type of an input that the operator requires."""
        type = self.inputs[position] if position < len(self.inputs) else None
        if type is None:
            raise CompilerError("an input is missing", where=self.operator.name, expected=f"input {position}")
        return type

    def has(self, position: int) -> bool:
        """Return whether an optional input is given."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def require_float(self) -> None:
        """Raise CompilerError unless the first input is float32 or float64."""
        if self.x.element not in ("float32", "float64"):
            raise CompilerError(f"{self.operator.name} of {self.x.element}")


Rule = Callable[[CKernel], Lines]


def shape_of(type: TensorType) -> tuple[int, ...]:
    """Return a shape without dynamic axes as numbers."""
    return tuple(int(axis) for axis in type.shape)


def size_of(type: TensorType) -> int:
    """Return the number of elements."""
    return math.prod(shape_of(type))


def c_type(type: TensorType) -> str:
    """Return the element type in C."""
    return TYPES[type.element]


def suffix(type: TensorType) -> str:
    """Return the ending of helpers for an element type, such as f32."""
    return SUFFIXES[type.element]


def libm(type: TensorType) -> str:
    """Return the ending of functions of <math.h>: f for float32."""
    return "f" if type.element == "float32" else ""


def strides_of(shape: Sequence[int]) -> Strides:
    """Return how many elements lie between neighbours along each axis, in C order."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def broadcast_strides(shape: Sequence[int], wide: Sequence[int]) -> Strides:
    """Return the strides with which a tensor is read as if it had the shape that it is broadcast to."""
    own = zip(shape, strides_of(shape), strict=True)
    return (0,) * (len(wide) - len(shape)) + tuple(0 if size == 1 else stride for size, stride in own)


def indent(lines: Sequence[str]) -> Lines:
    """Return lines, four columns to the right."""
    return [f"    {line}" if line else line for line in lines]


def loop(index: str, count: int, body: Sequence[str]) -> Lines:
    """Return a loop from 0 to a count."""
    return [f"for (int {index} = 0; {index} < {count}; ++{index}) {{", *indent(body), "}"]


def nest(loops: Sequence[tuple[str, int]], body: Sequence[str]) -> Lines:
    """Return nested loops, the first outermost."""
    lines = list(body)
    for index, count in reversed(loops):
        lines = loop(index, count, lines)
    return lines


def at(indices: Sequence[str], strides: Sequence[int], base: int = 0) -> str:
    """Return the sum of indices times strides; those with stride 0 are left out."""
    terms = [
        index if stride == 1 else f"{index} * {stride}"
        for index, stride in zip(indices, strides, strict=True)
        if stride
    ]
    terms += [str(base)] if base or not terms else []
    return " + ".join(terms).replace("+ -", "- ")


def indices(count: int, letter: str = "i") -> list[str]:
    """Return names of indices: i alone, or i0, i1, ..."""
    return [letter] if count == 1 else [f"{letter}{axis}" for axis in range(count)]


def merged(shape: Sequence[int], strides: Sequence[Strides]) -> tuple[list[int], list[Strides]]:
    """Return fewer axes that visit the same elements in the same order: neighbours that are contiguous become one.

    Args:
        shape: Lengths of the axes.
        strides: For each tensor, the stride along each axis.
    """
    axes: list[tuple[int, list[int]]] = []
    for axis, size in enumerate(shape):
        steps = [each[axis] for each in strides]
        if size == 1:
            continue
        if axes and all(outer == inner * size for outer, inner in zip(axes[-1][1], steps, strict=True)):
            axes[-1] = (axes[-1][0] * size, steps)
        else:
            axes.append((size, steps))
    axes = axes or [(1, [1] * len(strides))]
    return [size for size, _ in axes], [tuple(steps[i] for _, steps in axes) for i in range(len(strides))]


def visit(shape: Sequence[int], strides: Sequence[Strides], body: Callable[[list[str]], Sequence[str]]) -> Lines:
    """Return loops over all positions of a shape; the body is given the flat index into each tensor."""
    sizes, steps = merged(shape, strides)
    names = indices(len(sizes))
    return nest(list(zip(names, sizes, strict=True)), body([at(names, each) for each in steps]))


def less(offset: int) -> str:
    """Return what subtracts an offset; nothing if it is 0."""
    return f" - {offset}" if offset > 0 else f" + {-offset}" if offset < 0 else ""


# -- helpers


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
