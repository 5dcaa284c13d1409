"""Standard operators that ONNX defines by others: those without an import rule are replaced by their definition.

ONNX's own inliner does it, on the graph and the branches in it: RMSNormalization, for example, becomes the products
and means by which the standard defines it. So is FlexAttention of the preview domain, with the graphs in its
attributes that modify the scores and the probabilities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import onnx
from onnx.inliner import inline_selected_functions
from onnx.shape_inference import InferenceError

from mlhood.compiler.operators import attention
from mlhood.exchange.functions import STANDARD, all_nodes

_PREVIEW = "ai.onnx.preview"
_Key = tuple[str, str]  # a domain, and the name of an operator in it
_MAX_ROUNDS = 5  # definitions within definitions
_MAX_CALLS = 2**12  # a definition has up to a hundred nodes
_LOOPS = frozenset({"Range", "SequenceMap"})  # defined by a Loop, of which nothing is gained


def expand_functions(proto: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto:
    """Return a model without calls of operators that have no import rule, but a definition in ONNX.

    Args:
        proto: The model; not modified.
        operators: Names of the operators with an import rule.
    """
    opsets = {"": 1}
    for entry in proto.opset_import:
        domain = _domain(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, 1))
    known = {("", name) for name in {*operators, *_LOOPS}}
    for _ in range(_MAX_ROUNDS):
        called = {(_domain(node.domain), node.op_type) for node in all_nodes(proto.graph)}
        called -= known - {("", name) for name in _beyond_rules(proto)}
        wanted = sorted(key for key in called if key[0] in ("", _PREVIEW) and _has_definition(key, opsets))
        calls = sum((_domain(node.domain), node.op_type) in wanted for node in all_nodes(proto.graph))
        if not wanted or calls > _MAX_CALLS:  # the latter are not supported then
            break
        proto = _with_defaults(proto, wanted, opsets)
        try:
            proto = inline_selected_functions(proto, wanted, inline_schema_functions=True)
        except (RuntimeError, ValueError, InferenceError):  # the types that it depends on cannot be inferred
            break
    return proto


def _beyond_rules(proto: onnx.ModelProto) -> set[str]:
    """Return the operators whose rules do not cover all that a model asks of them."""
    attentions = (node for node in all_nodes(proto.graph) if node.op_type == "Attention")
    return set() if all(map(attention.covers, attentions)) else {"Attention"}


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _with_defaults(proto: onnx.ModelProto, keys: Collection[_Key], opsets: Mapping[str, int]) -> onnx.ModelProto:
    """Return a copy whose calls of these operators give all attributes: the inliner does not know the defaults."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in all_nodes(copy.graph):
        key = _domain(node.domain), node.op_type
        if key in keys:
            given = {attribute.name for attribute in node.attribute}
            declared = onnx.defs.get_schema(node.op_type, opsets.get(key[0], 1), key[0]).attributes
            defaults = {name: attribute.default_value for name, attribute in declared.items()}
            node.attribute.extend(d for name, d in defaults.items() if name not in given and d.name)
    return copy


def _has_definition(key: _Key, opsets: Mapping[str, int]) -> bool:
    domain, name = key
    try:
        schema: Any = onnx.defs.get_schema(name, opsets.get(domain, 1), domain)  # its type stub lacks these two
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function
