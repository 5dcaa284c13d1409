"""From a graph to a scene: a box for each node, input and output; constants are lines in the boxes that read them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.text import attribute_text
from mlhood.compiler.hir.types import Quantization, Shape, TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.graph_drawing import Box, Line, NodeStyle, Port, Scene, StyleSheet, Wire, WireStyle, fit_text

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


def constant_lines(node: Node) -> Iterator[str]:
    """Yield the constants that a node reads, those of one type on one line."""
    names: dict[str, list[str]] = {}
    scales: dict[str, str] = {}
    for name, value in zip(input_names(node), node.inputs, strict=True):
        if isinstance(value, Constant):
            text = format_constant(value)
            names.setdefault(text, []).append(name)
            if value.type.quantization is not None and name != "bias":  # its scale is the product of the others'
                scales[text] = format_quantization(value.type.quantization)
    for text, inputs in names.items():
        yield f"{', '.join(inputs)} {text}"
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


# Light tints of the palette of Okabe and Ito, which colour-blind readers can distinguish; their lightness differs, too.
FAMILIES: dict[str, NodeStyle] = {
    "end": NodeStyle("input, output", "#ffffff", "stadium"),
    "product": NodeStyle("convolution, dense", "#f9d798", "rectangle"),
    "normalization": NodeStyle("normalisation", "#fbf6c2", "cut"),
    "activation": NodeStyle("activation", "#b5e3d2", "rounded"),
    "pooling": NodeStyle("pooling, reduction", "#c3e5f7", "funnel"),
    "arithmetic": NodeStyle("arithmetic", "#f2cdb6", "hexagon"),
    "shape": NodeStyle("shape, order", "#e3e3e3", "slanted"),
    "quantization": NodeStyle("quantisation", "#ecd0e0", "barred"),
    "other": NodeStyle("other", "#f7f7f7", "rectangle"),
}

FLOAT = WireStyle("floating point")
QUANTIZED = WireStyle("quantised", "double")
INTEGER = WireStyle("integers, bool", "dotted")

STYLES = StyleSheet(tuple(FAMILIES.values()), (FLOAT, QUANTIZED, INTEGER))


Key = tuple[str, str]
_LABEL_SIZE = 10.0
_MAX_DETAILS = 6  # lines below the name


def describe(
    graph: Graph,
    notes: Mapping[Key, tuple[str, ...]] | None = None,
) -> Scene:
    """Return a graph as a scene.

    Args:
        graph: The graph.
        notes: What has changed, by the keys of the boxes that show it.

    Raises:
        CompilerError: The graph has a cycle.
    """
    scene = _Builder()
    for placeholder in graph.placeholders.values():
        scene.add_end(("input", placeholder.name), placeholder)
    for node in graph.topological():
        scene.add_node(node)
    for name, value in graph.outputs.items():
        scene.add_output(name, value)
    for box in scene.boxes:
        lines = (notes or {}).get(box.key, ())
        box.lines += tuple(Line(fit_text(typeset(f"~ {text}"), 44), _LABEL_SIZE) for text in lines)
    return Scene(graph.name, scene.boxes, scene.wires, STYLES)


def value_port(type: TensorType) -> Port:
    """Return the port of a value of this type."""
    style = QUANTIZED if type.quantization is not None else FLOAT if type.is_float else INTEGER
    lines = enumerate(type_lines(type))
    return Port(tuple(Line(fit_text(typeset(text), 40), _LABEL_SIZE, faint=i > 0) for i, text in lines), style)


class _Builder:
    def __init__(self) -> None:
        self.boxes: list[Box] = []
        self.wires: list[Wire] = []
        self.ports: dict[Value, tuple[int, int]] = {}  # indices of a box and of a port of it

    def add_end(self, key: Key, value: Value | None) -> Box:
        """Add a box that only names a value: an input or an output."""
        lines = (Line(fit_text(key[1]), 12.0, bold=True), Line(key[0], 9.5, faint=True))
        box = Box(key, FAMILIES["end"], lines, () if value is None else (value_port(value.type),))
        if value is not None:
            self.ports[value] = len(self.boxes), 0
        self.boxes.append(box)
        return box

    def add_node(self, node: Node) -> None:
        """Add a node, and wires from what it reads."""
        details = [*attribute_lines(node), *constant_lines(node)]
        if len(details) > _MAX_DETAILS:
            details[_MAX_DETAILS - 1 :] = [f"… and {len(details) - _MAX_DETAILS + 1} more"]
        lines = (
            Line(fit_text(node_label(node.operator)), 13.0, bold=True),
            Line(fit_text(node.name), 9.5, faint=True),
            *(Line(fit_text(typeset(text), 40)) for text in details),
        )
        ports = tuple(value_port(value.type) for value in node.outputs)
        index = len(self.boxes)
        self.boxes.append(Box(("node", node.name), FAMILIES[node.operator.family], lines, ports))
        self.ports.update({value: (index, i) for i, value in enumerate(node.outputs)})
        for position, value in enumerate(node.inputs):
            if value is not None and not isinstance(value, Constant):
                self.add_wire(value, index, arrow_label(node, position))

    def add_wire(self, value: Value, target: int, label: str = "") -> None:
        """Connect a value with one more arrow of a box."""
        labels = self.boxes[target].arrow_labels
        self.wires.append(Wire(*self.ports[value], target, len(labels)))
        labels.append(fit_text(label, 16))

    def add_output(self, name: str, value: Value) -> None:
        """Add an output of the graph."""
        box = self.add_end(("output", name), None)
        if isinstance(value, Constant):
            box.lines += (Line(fit_text(f"constant {format_constant(value)}")),)
        else:
            self.add_wire(value, len(self.boxes) - 1)
