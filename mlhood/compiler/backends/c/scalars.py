"""Element-wise operators as expressions of C on one number each."""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.compiler.backends.c.literals import SUFFIXES, TYPES, number
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.operators.activation import Activation, operator_of
from mlhood.compiler.operators.elementwise import Clip, Elu, Gelu, HardSigmoid, LeakyRelu
from mlhood.errors import CompilerError

_REALS = ("float32", "float64")
# With a and b for the operands, E for the ending of helpers, and F for that of functions of <math.h>.
_FLOAT = {
    "Add": "{a} + {b}",
    "Sub": "{a} - {b}",
    "Mul": "{a} * {b}",
    "Div": "{a} / {b}",
    "Pow": "pow{F}({a}, ({T}){b})",
    "PRelu": "{a} < 0 ? {a} * {b} : {a}",
    "Abs": "fabs{F}({a})",
    "HardSwish": "hard_swish_{E}({a})",
    "Neg": "-{a}",
    "Reciprocal": "1 / {a}",
    "Sigmoid": "sigmoid_{E}({a})",
    "Silu": "{a} * sigmoid_{E}({a})",
    "Softplus": "softplus_{E}({a})",
    "Softsign": "{a} / (1 + fabs{F}({a}))",
    "Round": "rint{F}({a})",
    "Relu": "relu_{E}({a})",
    "Sign": "sign_{E}({a})",
}
_LIBM = (
    "Ceil",
    "Cos",
    "Erf",
    "Exp",
    "Floor",
    "Log",
    "Sin",
    "Sqrt",
    "Tanh",
    "Acos",
    "Asin",
    "Atan",
    "Cosh",
    "Sinh",
    "Tan",
)
_FLOAT |= {name: f"{name.lower()}{{F}}({{a}})" for name in (*_LIBM, "Acosh", "Asinh", "Atanh")}
# Sums and products wrap around, in the unsigned arithmetic that C defines for it.
_INTEGER = {
    "Add": "({T})((uint64_t){a} + (uint64_t){b})",
    "Sub": "({T})((uint64_t){a} - (uint64_t){b})",
    "Mul": "({T})((uint64_t){a} * (uint64_t){b})",
    "Div": "divide_{E}({a}, {b})",
    "Pow": "to_{E}(pow((double){a}, (double){b}))",
    "PRelu": "({T})({a} < 0 ? (uint64_t){a} * (uint64_t){b} : (uint64_t){a})",
    "Abs": "({T})({a} < 0 ? 0 - (uint64_t){a} : (uint64_t){a})",
    "Neg": "({T})(0 - (uint64_t){a})",
    "Relu": "max_{E}({a}, 0)",
    "Sign": "({T})(({a} > 0) - ({a} < 0))",
    "BitwiseAnd": "({T})({a} & {b})",
    "BitwiseOr": "({T})({a} | {b})",
    "BitwiseXor": "({T})({a} ^ {b})",
    "BitwiseNot": "({T})~{a}",
}
_UNSIGNED = _INTEGER | {"Abs": "{a}", "Relu": "{a}", "Sign": "{a} > 0", "PRelu": "{a}"}
_ANY = {
    "Max": "max_{E}({a}, {b})",
    "Min": "min_{E}({a}, {b})",
    "Equal": "{a} == {b}",
    "Greater": "{a} > {b}",
    "GreaterOrEqual": "{a} >= {b}",
    "Less": "{a} < {b}",
    "LessOrEqual": "{a} <= {b}",
    "And": "{a} && {b}",
    "Or": "{a} || {b}",
    "Xor": "!{a} != !{b}",
    "Not": "!{a}",
    "Where": "{a} ? {b} : {c}",
    "Identity": "{a}",
}


def expression(operator: Operator, operands: Sequence[str], element: str) -> str:
    """Return an element-wise operator, applied to operands: expressions without side effects that bind tightly.

    Args:
        operator: The operator.
        operands: An expression for each input.
        element: Element type of the operands; of a Where, of its second and third.

    Raises:
        CompilerError: There is no C for the operator with this element type.
    """
    with_attributes = _with_attributes(operator, operands[0], element)
    if with_attributes is not None:
        return with_attributes
    tables = _ANY | (_FLOAT if element in _REALS else _UNSIGNED if element.startswith("u") else _INTEGER)
    if operator.name not in tables or (element == "bool" and operator.name in (*_INTEGER, "Max", "Min")):
        raise CompilerError(f"{operator.label} of {element}")
    ending = "f" if element == "float32" else ""
    parts = dict(zip("abc", operands, strict=False))
    return tables[operator.name].format(**parts, T=TYPES[element], E=SUFFIXES[element], F=ending)


def _with_attributes(operator: Operator, x: str, element: str) -> str | None:
    end = SUFFIXES[element]
    match operator:
        case Clip():
            y = x if operator.low is None else f"max_{end}({x}, {number(operator.low, element)})"
            return y if operator.high is None else f"min_{end}({y}, {number(operator.high, element)})"
        case LeakyRelu():
            return f"leaky_relu_{end}({x}, {number(operator.alpha, element)})"
        case Elu():
            return f"elu_{end}({x}, {number(operator.alpha, element)}, {number(operator.gamma, element)})"
        case HardSigmoid():
            line = f"{x} * {number(operator.alpha, element)} + {number(operator.beta, element)}"
            return f"max_{end}(0, min_{end}(1, {line}))"
        case Gelu():
            return f"gelu_tanh_{end}({x})" if operator.approximate == "tanh" else f"gelu_{end}({x})"
    return None


def activated(activation: Activation, x: str, element: str) -> str:
    """Return a fused activation of an expression, which is evaluated more than once."""
    return expression(operator_of(activation), [x], element) if activation else x
