"""Operators that compute each element from those at its own position, by an expression of C on one number each."""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.compiler.backends.c.kernel import (
    SUFFIXES,
    TYPES,
    CKernel,
    Lines,
    broadcast_strides,
    c_type,
    less,
    number,
    shape_of,
    strides_of,
    suffix,
    table,
    visit,
)
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.activation import Activation, AddActivation, operator_of
from mlhood.compiler.operators.arithmetic import Add, Pow
from mlhood.compiler.operators.chain import CONSTANT, ElementwiseChain, operator_of_step
from mlhood.compiler.operators.elementwise import Clip, Elu, Gelu, HardSigmoid, LeakyRelu
from mlhood.compiler.operators.rescale import parameters_of
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


def elementwise(kernel: CKernel) -> Lines:
    """Return the loop of an operator of one or several tensors, which are broadcast."""
    types = [kernel.input(position) for position in range(len(kernel.inputs))]
    if isinstance(kernel.operator, Pow) and kernel.x.element != kernel.input(1).element and not kernel.x.is_float:
        types[1] = TensorType("float64", types[1].shape)

    def body(places: list[str]) -> Lines:
        *read, written = places
        operands = [f"{name}[{place}]" for name, place in zip(kernel.names, read, strict=True)]
        return _assign(kernel, operands, f"y[{written}]", types[-1].element)

    return _visit(kernel, body)


def _visit(kernel: CKernel, body) -> Lines:
    wide = shape_of(kernel.y)
    types = [type for type in kernel.inputs if type is not None]
    strides = [broadcast_strides(shape_of(type), wide) for type in types]
    return visit(wide, [*strides, strides_of(wide)], body)


def _assign(kernel: CKernel, operands: list[str], target: str, element: str) -> Lines:
    operator = kernel.operator
    if isinstance(operator, AddActivation):
        total = f"const {c_type(kernel.y)} sum = {expression(Add(), operands, element)};"
        return [total, f"{target} = {activated(operator.activation, 'sum', element)};"]
    if isinstance(operator, ElementwiseChain):
        return _chain(operator, operands, target)
    base = kernel.x.element if isinstance(operator, Pow) else element
    return [f"{target} = {expression(operator, operands, base)};"]


def _chain(operator: ElementwiseChain, operands: list[str], target: str) -> Lines:
    values, lines = list(operands), []
    for position, step in enumerate(operator.steps):
        constant = step[0] == CONSTANT
        read = [values[operand] for operand in step[2]]
        text = number(step[1][0], "float32") if constant else expression(operator_of_step(step), read, "float32")
        lines.append(f"const float step{position} = {text};")
        values.append(f"step{position}")
    return [*lines, f"{target} = {values[-1]};"]


def cast(kernel: CKernel) -> Lines:
    """Return the conversion to another element type."""
    to, real = kernel.y.element, kernel.x.is_float

    def body(places: list[str]) -> Lines:
        read, written = f"x[{places[0]}]", f"y[{places[1]}]"
        if to == "bool":
            return [f"{written} = {read} != 0;"]
        if kernel.y.is_float or not real:
            return [f"{written} = ({c_type(kernel.y)}){read};"]
        return [f"{written} = to_{suffix(kernel.y)}({read});"]

    return _visit(kernel, body)


def shape(kernel: CKernel) -> Lines:
    """Return the assignments of a shape, which is known."""
    lengths = shape_of(kernel.x)[kernel.operator.start : kernel.operator.stop]
    return [f"y[{i}] = {length};" for i, length in enumerate(lengths)]


def _parameters(quantization: Quantization, shape: tuple[int, ...]) -> tuple[Lines, str, str, tuple[int, ...]]:
    """Return tables of scales and offsets, how each is read at {p}, with a sign {s}, and the strides of p."""
    if quantization.axis is None:
        return [], number(quantization.scale[0], "float32"), "", (0,) * len(shape)
    lines = [*table("scale", quantization.scale, "float32"), *table("offset", quantization.offset, "int32")]
    strides = tuple(int(axis == quantization.axis) for axis in range(len(shape)))
    return lines, "scale[{p}]", " {s} offset[{p}]", strides


def quantize(kernel: CKernel) -> Lines:
    """Return the conversion of reals to integers."""
    wide, parameters = shape_of(kernel.y), kernel.y.quantization or parameters_of(kernel.y)
    lines, scale, offset, strides = _parameters(parameters, wide)
    rounding = "rintf" if kernel.x.element == "float32" else "rint"

    def body(places: list[str]) -> Lines:
        by = scale.format(p=places[1])
        plus = offset.format(p=places[1], s="+") or less(-parameters.offset[0])
        return [f"y[{places[2]}] = to_{suffix(kernel.y)}((double){rounding}(x[{places[0]}] / {by}){plus});"]

    flat = strides_of(wide)
    return [*lines, *visit(wide, [flat, strides, flat], body)]


def dequantize(kernel: CKernel) -> Lines:
    """Return the conversion of integers to reals."""
    wide = shape_of(kernel.y)
    parameters = parameters_of(kernel.x)
    lines, scale, offset, strides = _parameters(parameters, wide)

    def body(places: list[str]) -> Lines:
        by = scale.format(p=places[1])
        minus = offset.format(p=places[1], s="-") or less(parameters.offset[0])
        return [f"y[{places[2]}] = (float)((int64_t)x[{places[0]}]{minus}) * {by};"]

    flat = strides_of(wide)
    return [*lines, *visit(wide, [flat, strides, flat], body)]
