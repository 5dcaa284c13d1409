"""The words of a drawing: what an operator, its attributes, its constants and a type are called in a box."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import spell
from mlhood.compiler.hir.types import Quantization, Shape, TensorType
from mlhood.compiler.hir.values import Constant, Node

_FULL_WORDS = {"w": "weight"}
_LINE = 28  # characters of attributes on a line
_WRITTEN_OUT = 4  # elements up to which a constant's are shown instead of its shape


def heading(operator: Operator) -> str:
    """Return the operator with what was fused into it: "Conv + Relu"."""
    activation = getattr(operator, "activation", ())
    return f"{operator.label} + {activation_words(activation)}" if activation else operator.label


def activation_words(activation: tuple[Any, ...]) -> str:
    """Return an activation in words: "none", "Relu", "Clip(0, 6)"."""
    if not activation:
        return "none"
    name, *numbers = activation
    return f"{name}({', '.join(map(number, numbers))})" if numbers else str(name)


def number(value: Any) -> str:
    """Return a number in at most four digits; anything else as the text form has it."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return spell(value)


def attribute_lines(node: Node) -> Iterator[str]:
    """Give the attributes that a reader looks for; what equals the usual is left out."""
    window = list(_window(node))
    yield from _filled(window)
    known = {"kernel", "strides", "pads", "dilations", "group", "activation"} if window else {"activation"}
    types = [value.type.quantization for value in node.outputs]
    for name, value in node.operator.stated.items():
        if name not in known and not (isinstance(value, Quantization) and value in types):
            yield name if value is True else f"{name} {attribute_words(value)}"


def attribute_words(value: Any) -> str:
    """Return an attribute in words."""
    if isinstance(value, Quantization):
        return scale_words(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(number, value))}]"
    return value if isinstance(value, str) else number(value)


def _window(node: Node) -> Iterator[str]:
    """Give kernel and stride of an operator with windows, and what else is not the usual."""
    operator = node.operator
    strides, pads = getattr(operator, "strides", None), getattr(operator, "pads", None)
    if strides is None or pads is None:
        return
    kernel = getattr(operator, "kernel", None) or _weight_shape(node)[2:]
    yield "×".join(map(str, kernel))
    yield f"stride {_each(strides)}"
    if any(pads):
        yield f"pad {_each(pads, ' ')}"
    dilations, group = getattr(operator, "dilations", ()), getattr(operator, "group", 1)
    if any(one != 1 for one in dilations):
        yield f"dilation {_each(dilations)}"
    if group != 1:
        yield f"group {group}"


def _weight_shape(node: Node) -> Shape:
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    return weight.type.shape if weight is not None else ()


def _each(numbers: tuple[int, ...], between: str = "×") -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else between.join(map(str, numbers))


def _filled(words: list[str]) -> Iterator[str]:
    """Give the words in as few lines as hold them."""
    line = ""
    for word in words:
        if line and len(line) + len(word) > _LINE:
            yield line + ","
            line = ""
        line += f", {word}" if line else word
    if line:
        yield line


def constant_lines(node: Node, *, sizes: bool = False) -> Iterator[str]:
    """Give the constants that a node reads, those of one type on one line; with `sizes` also their bytes."""
    roles: dict[str, list[str]] = {}
    size: dict[str, int] = {}
    scales: dict[str, str] = {}
    for role, value in zip(input_names(node), node.inputs, strict=True):
        if isinstance(value, Constant):
            words = constant_words(value)
            roles.setdefault(words, []).append(role)
            size[words] = size.get(words, 0) + value.data.nbytes
            if value.type.quantization is not None and role != "bias":  # a bias has the product of the others' scales
                scales[words] = scale_words(value.type.quantization)
    for words, names in roles.items():
        yield f"{', '.join(names)} {words}" + (f" · {size[words]:,} B" if sizes else "")
        if words in scales:
            yield scales[words]


def constant_words(constant: Constant) -> str:
    """Return a constant's elements, where they are few, or its type."""
    data = constant.data
    if constant.type.quantization is None and data.size <= _WRITTEN_OUT and data.ndim <= 1:
        elements = [number(element) for element in data.ravel().tolist()]
        return elements[0] if data.ndim == 0 else f"[{', '.join(elements)}]"
    element = "" if constant.type.element == "float32" else constant.type.element
    return f"{element}{shape_words(constant.type.shape)}"


def input_names(node: Node) -> list[str]:
    """Return what the operator's type rule calls each input: "x", "weight", "bias"."""
    return _names(type(node.operator).infer, len(node.inputs))


@lru_cache(maxsize=1024)
def _names(rule: Callable[..., Any], count: int) -> list[str]:
    parameters = list(inspect.signature(rule).parameters.values())[1:]
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            names.append(_FULL_WORDS.get(parameter.name, parameter.name))
    return (names + [f"input {i}" for i in range(count)])[:count]


def arrow_words(node: Node, position: int) -> str:
    """Return what stands beside the arrow of an input, where several arrive and it matters which is which."""
    running = [value for value in node.inputs if value is not None and not isinstance(value, Constant)]
    if len(running) < 2 or node.operator.commutative:
        return ""
    return input_names(node)[position]


def shape_words(shape: Shape) -> str:
    """Return a shape as the text form has it."""
    return f"[{', '.join(map(str, shape))}]"


def type_lines(type: TensorType) -> Iterator[str]:
    """Give a type in words: element type and shape, then what the integers stand for."""
    yield f"{type.element}{shape_words(type.shape)}"
    if type.quantization is not None:
        yield scale_words(type.quantization)


def type_words(type: TensorType) -> str:
    """Return a type in one line: "int8[2, 3] with scale 2^-7"."""
    return " with ".join(type_lines(type))


def scale_words(quantization: Quantization) -> str:
    """Return the parameters of a quantised tensor: "scale 2^-7", "scale 0.0312, offset -3", "6 scales along axis 0"."""
    if quantization.axis is not None:
        offsets = "" if not any(quantization.offset) else " and offsets"
        return f"{len(quantization.scale)} scales{offsets} along axis {quantization.axis}"
    offset = f", offset {quantization.offset[0]}" if quantization.offset[0] else ""
    return f"scale {_scale(quantization.scale[0])}{offset}"


def _scale(scale: float) -> str:
    fraction, exponent = math.frexp(scale)
    if fraction == 0.5 and exponent != 1:
        return f"2^{exponent - 1}"
    return f"{scale:.3g}"
