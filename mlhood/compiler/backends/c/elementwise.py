"""Operators that compute each element from those at its own position."""

from __future__ import annotations

from mlhood.compiler.backends.c.kernel import (
    Kernel,
    Lines,
    broadcast_strides,
    c_type,
    shape_of,
    strides_of,
    suffix,
    visit,
)
from mlhood.compiler.backends.c.literals import number, table
from mlhood.compiler.backends.c.pooling import less
from mlhood.compiler.backends.c.scalars import activated, expression
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Pow
from mlhood.compiler.operators.chain import CONSTANT, ElementwiseChain, operator_of
from mlhood.compiler.operators.rescale import parameters_of


def elementwise(kernel: Kernel) -> Lines:
    """Return the loop of an operator of one or several tensors, which are broadcast."""
    types = [kernel.input(position) for position in range(len(kernel.inputs))]
    if isinstance(kernel.operator, Pow) and kernel.x.element != kernel.input(1).element and not kernel.x.is_float:
        types[1] = TensorType("float64", types[1].shape)

    def body(places: list[str]) -> Lines:
        *read, written = places
        operands = [f"{name}[{place}]" for name, place in zip(kernel.names, read, strict=True)]
        return _assign(kernel, operands, f"y[{written}]", types[-1].element)

    return _visit(kernel, body)


def _visit(kernel: Kernel, body) -> Lines:
    wide = shape_of(kernel.y)
    types = [type for type in kernel.inputs if type is not None]
    strides = [broadcast_strides(shape_of(type), wide) for type in types]
    return visit(wide, [*strides, strides_of(wide)], body)


def _assign(kernel: Kernel, operands: list[str], target: str, element: str) -> Lines:
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
        text = number(step[1][0], "float32") if constant else expression(operator_of(step), read, "float32")
        lines.append(f"const float step{position} = {text};")
        values.append(f"step{position}")
    return [*lines, f"{target} = {values[-1]};"]


def cast(kernel: Kernel) -> Lines:
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


def shape(kernel: Kernel) -> Lines:
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


def quantize(kernel: Kernel) -> Lines:
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


def dequantize(kernel: Kernel) -> Lines:
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
