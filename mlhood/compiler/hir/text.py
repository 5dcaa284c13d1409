"""The text form of a graph: deterministic, and parsed back by `mlhood.compiler.hir.parse`.

    graph "lenet"
      placeholder %image : float32[batch, 1, 32, 32]
      constant %conv1.weight : float32[6, 1, 5, 5] = sha256:51c08bb9c1a2f2d3
      %conv1 : float32[batch, 6, 28, 28] = Conv(%image, %conv1.weight) {strides=[1, 1], pads=[0, 0, 0, 0], ...}
      output %conv1

A node has the name of its first output unless another name precedes the parenthesis. Attributes at their default are
left out. Constants of up to eight elements are written out, larger ones are given by a hash of their content.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Dim, Quantization, TensorType
from mlhood.compiler.hir.values import Node, Value

_MAX_INLINE = 8  # elements of a constant that is written out
PLAIN_NAME = re.compile(r"[\w./:-]+")
PLAIN_WORD = re.compile(r"(?!(?:inf|nan)\Z)[A-Za-z_]\w*")  # these two are numbers


def to_text(graph: Graph) -> str:
    """Return the text of a graph.

    Raises:
        CompilerError: The graph has a cycle.
    """
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [f"  placeholder {_declaration(value)}" for value in graph.placeholders.values()]
    lines += [f"  constant {_declaration(value)} = {content_text(value.data)}" for value in graph.constants.values()]
    lines += [f"  {_node(node)}" for node in graph.topological()]
    lines += [
        f"  output {'' if name == value.name else f'{json.dumps(name)} = '}{_reference(value)}"
        for name, value in graph.outputs.items()
    ]
    return "\n".join(lines) + "\n"


def digest(array: np.ndarray) -> str:
    """Return the hash that identifies a constant in the text form: of its element type, shape and elements."""
    content = np.ascontiguousarray(array)
    if content.dtype.byteorder == ">":
        content = content.astype(content.dtype.newbyteorder("<"))
    header = f"{array.dtype.name}{list(array.shape)}".encode()
    return hashlib.sha256(header + content.tobytes()).hexdigest()[:16]


def type_text(type: TensorType) -> str:
    """Return the text of a type: `float32[batch, 3]`."""
    shape = ", ".join(map(_dim, type.shape))
    quantization = f" {attribute_text(type.quantization)}" if type.quantization else ""
    return f"{type.element}[{shape}]{quantization}"


def attribute_text(attribute: Any) -> str:
    """Return the text of an attribute."""
    if isinstance(attribute, Quantization):
        axis = "" if attribute.axis is None else f", axis={attribute.axis}"
        return f"quantized(scale={attribute_text(attribute.scale)}, offset={attribute_text(attribute.offset)}{axis})"
    if isinstance(attribute, tuple):
        return f"[{', '.join(map(attribute_text, attribute))}]"
    if attribute is None or isinstance(attribute, bool):
        return str(attribute).lower()
    if isinstance(attribute, float):
        return repr(float(attribute)) if math.isfinite(attribute) else str(float(attribute))
    return json.dumps(attribute)


def attributes_text(operator: Operator) -> str:
    """Return the text of an operator's attributes that differ from their defaults, with a leading space if any do."""
    attributes = ", ".join(f"{key}={attribute_text(value)}" for key, value in operator.non_default_attributes.items())
    return f" {{{attributes}}}" if attributes else ""


def content_text(array: np.ndarray) -> str:
    """Return the text of a constant's elements, or of the hash that identifies them."""
    if array.size > _MAX_INLINE:
        return f"sha256:{digest(array)}"
    return attribute_text(tuple(array.ravel().tolist()))


def quote_name(name: str) -> str:
    """Return the name of a value in the text form, quoted if necessary."""
    return name if PLAIN_NAME.fullmatch(name) else json.dumps(name)


def _dim(axis: Dim) -> str:
    return axis if isinstance(axis, str) and PLAIN_WORD.fullmatch(axis) else json.dumps(axis)


def _reference(value: Value | None) -> str:
    return "none" if value is None else f"%{quote_name(value.name)}"


def _declaration(value: Value) -> str:
    return f"{_reference(value)} : {type_text(value.type)}"


def _node(node: Node) -> str:
    outputs = ", ".join(map(_declaration, node.outputs))
    name = "" if node.outputs and node.outputs[0].name == node.name else f" {json.dumps(node.name)} "
    inputs = ", ".join(map(_reference, node.inputs))
    return f"{outputs} = {node.operator.name}{name}({inputs}){attributes_text(node.operator)}"
