"""The text in a drawing: of an operator, its attributes, its constants, and types. `diff` uses the same words."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import attribute_text
from mlhood.compiler.hir.types import Quantization, Shape, TensorType
from mlhood.compiler.hir.values import Constant, Node

_FULL_NAMES = {"w": "weight"}
_MAX_LINE = 28  # characters of attributes on one line
_MAX_ELEMENTS = 4  # of a constant that is written out
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def node_label(operator: Operator) -> str:
    """Return the operator and what was fused into it: "Conv + Relu"."""
    activation = getattr(operator, "activation", ())
    return f"{operator.label} + {format_activation(activation)}" if activation else operator.label


def format_activation(activation: tuple[Any, ...]) -> str:
    """Return an activation as text: "none", "Relu", "Clip(0, 6)"."""
    if not activation:
        return "none"
    name, *attributes = activation
    return f"{name}({', '.join(map(format_number, attributes))})" if attributes else str(name)


def format_number(value: Any) -> str:
    """Return a number with at most four digits; anything else as in the text form."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return attribute_text(value)


def attribute_lines(node: Node) -> Iterator[str]:
    """Yield the attributes that characterise a node, without those at their defaults."""
    window = list(_window(node))
    yield from _wrap(window)
    shown = {"kernel", "strides", "pads", "dilations", "group", "activation"} if window else {"activation"}
    types = [value.type.quantization for value in node.outputs]
    for name, value in node.operator.non_default_attributes.items():
        if name not in shown and not (isinstance(value, Quantization) and value in types):
            yield name if value is True else f"{name} {format_attribute(value)}"


def format_attribute(value: Any) -> str:
    """Return an attribute as text."""
    if isinstance(value, Quantization):
        return format_quantization(value)
    if isinstance(value, Graph):
        return f"of {len(value.nodes)} node{'' if len(value.nodes) == 1 else 's'}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(format_number, value))}]"
    return value if isinstance(value, str) else format_number(value)


def _window(node: Node) -> Iterator[str]:
    """Yield kernel and stride of an operator with windows, and padding, dilation and groups unless they are trivial."""
    operator = node.operator
    strides, pads = getattr(operator, "strides", None), getattr(operator, "pads", None)
    if strides is None or pads is None:
        return
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    kernel = getattr(operator, "kernel", None) or (weight.type.shape[2:] if weight is not None else ())
    yield "×".join(map(str, kernel))
    yield f"stride {_per_axis(strides)}"
    if any(pads):
        yield f"pad {_per_axis(pads, ' ')}"
    dilations, group = getattr(operator, "dilations", ()), getattr(operator, "group", 1)
    if any(dilation != 1 for dilation in dilations):
        yield f"dilation {_per_axis(dilations)}"
    if group != 1:
        yield f"group {group}"


def _per_axis(numbers: tuple[int, ...], separator: str = "×") -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else separator.join(map(str, numbers))


def _wrap(words: list[str]) -> Iterator[str]:
    """Yield the words, separated by commas, in as few lines as possible."""
    line = ""
    for word in words:
        if line and len(line) + len(word) > _MAX_LINE:
            yield line + ","
            line = ""
        line += f", {word}" if line else word
    if line:
        yield line


def constant_lines(node: Node, *, sizes: bool = False) -> Iterator[str]:
    """Yield the constants that a node reads, those of one type on one line; with `sizes` also their bytes."""
    names: dict[str, list[str]] = {}
    size: dict[str, int] = {}
    scales: dict[str, str] = {}
    for name, value in zip(input_names(node), node.inputs, strict=True):
        if isinstance(value, Constant):
            text = format_constant(value)
            names.setdefault(text, []).append(name)
            size[text] = size.get(text, 0) + value.data.nbytes
            if value.type.quantization is not None and name != "bias":  # its scale is the product of the others'
                scales[text] = format_quantization(value.type.quantization)
    for text, inputs in names.items():
        yield f"{', '.join(inputs)} {text}" + (f" · {size[text]:,} B" if sizes else "")
        if text in scales:
            yield scales[text]


def format_constant(constant: Constant) -> str:
    """Return a constant's elements if they are few, its type otherwise."""
    data = constant.data
    if constant.type.quantization is None and data.size <= _MAX_ELEMENTS and data.ndim <= 1:
        elements = [format_number(element) for element in data.ravel().tolist()]
        return elements[0] if data.ndim == 0 else f"[{', '.join(elements)}]"
    element = "" if constant.type.element == "float32" else constant.type.element
    return f"{element}{_format_shape(constant.type.shape)}"


def input_names(node: Node) -> list[str]:
    """Return the names of a node's inputs, after the parameters of the operator's type rule: "x", "weight", "bias"."""
    return _parameter_names(type(node.operator).infer, len(node.inputs))


@lru_cache(maxsize=1024)
def _parameter_names(rule: Callable[..., Any], count: int) -> list[str]:
    names: list[str] = []
    for parameter in list(inspect.signature(rule).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            names.append(_FULL_NAMES.get(parameter.name, parameter.name))
    return (names + [f"input {i}" for i in range(count)])[:count]


def arrow_label(node: Node, position: int) -> str:
    """Return the name of an input for its arrow: "" if it is the only one, or if the inputs can be swapped."""
    variable = [value for value in node.inputs if value is not None and not isinstance(value, Constant)]
    return "" if len(variable) < 2 or node.operator.commutative else input_names(node)[position]


def _format_shape(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


def type_lines(type: TensorType) -> Iterator[str]:
    """Yield element type and shape, then the quantisation parameters if there are any."""
    yield f"{type.element}{_format_shape(type.shape)}"
    if type.quantization is not None:
        yield format_quantization(type.quantization)


def format_type(type: TensorType) -> str:
    """Return a type on one line: "int8[2, 3] with scale 2^-7"."""
    return " with ".join(type_lines(type))


def format_quantization(quantization: Quantization) -> str:
    """Return quantisation parameters: "scale 2^-7", "scale 0.0312, offset -3", "6 scales along axis 0"."""
    if quantization.axis is not None:
        offsets = " and offsets" if any(quantization.offset) else ""
        return f"{len(quantization.scale)} scales{offsets} along axis {quantization.axis}"
    offset = f", offset {quantization.offset[0]}" if quantization.offset[0] else ""
    return f"scale {_format_scale(quantization.scale[0])}{offset}"


def _format_scale(scale: float) -> str:
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5 and exponent != 1:
        return f"2^{exponent - 1}"
    return f"{scale:.3g}"


def typeset(text: str) -> str:
    """Return text with superscript exponents of scales and real arrows: "2^-7 -> 1" becomes "2⁻⁷ → 1"."""
    superscripted = re.sub(r"(?<=scale 2)\^(-?\d+)", lambda match: match[1].translate(_SUPERSCRIPTS), text)
    return superscripted.replace(" -> ", " → ")
