"""Standard operators that ONNX defines by others: those without an import rule are replaced by their definition.

ONNX's own inliner does it, on the graph and the branches in it: RMSNormalization, for example, becomes the products
and means by which the standard defines it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import onnx
from onnx.inliner import inline_selected_functions
from onnx.shape_inference import InferenceError

from mlhood.compiler.operators import attention_rule

STANDARD = ("", "ai.onnx")
_MAX_ROUNDS = 5  # definitions within definitions
_MAX_CALLS = 2**12  # a definition has up to a hundred nodes
_LOOPS = frozenset({"Range", "SequenceMap"})  # defined by a Loop, of which nothing is gained


def expand_functions(proto: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto:
    """Return a model without calls of standard operators that have no import rule, but a definition in ONNX.

    Args:
        proto: The model; not modified.
        operators: Names of the operators with an import rule.
    """
    opset = max((entry.version for entry in proto.opset_import if entry.domain in STANDARD), default=1)
    for _ in range(_MAX_ROUNDS):
        called = {node.op_type for node in all_nodes(proto.graph) if node.domain in STANDARD}
        ruled = set(operators) - _beyond_rules(proto)
        wanted = sorted(name for name in called - ruled - _LOOPS if _has_definition(name, opset))
        calls = sum(node.op_type in wanted for node in all_nodes(proto.graph))
        if not wanted or calls > _MAX_CALLS:  # the latter are not supported then
            break
        proto = _with_defaults(proto, wanted, opset)
        try:
            proto = inline_selected_functions(proto, [("", name) for name in wanted], inline_schema_functions=True)
        except (RuntimeError, ValueError, InferenceError):  # the types that it depends on cannot be inferred
            break
    return proto


def _beyond_rules(proto: onnx.ModelProto) -> set[str]:
    """Return the operators whose rules do not cover all that a model asks of them."""
    covered = {"Attention": attention_rule.covers}
    return {node.op_type for node in all_nodes(proto.graph) if not covered.get(node.op_type, _is_covered)(node)}


def _is_covered(node: onnx.NodeProto) -> bool:
    return True


def _with_defaults(proto: onnx.ModelProto, names: Collection[str], opset: int) -> onnx.ModelProto:
    """Return a copy whose calls of these operators give all attributes: the inliner does not know the defaults."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in all_nodes(copy.graph):
        if node.op_type in names and node.domain in STANDARD:
            given = {attribute.name for attribute in node.attribute}
            declared = onnx.defs.get_schema(node.op_type, opset).attributes
            defaults = {name: attribute.default_value for name, attribute in declared.items()}
            node.attribute.extend(d for name, d in defaults.items() if name not in given and d.name)
    return copy


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of all graphs within it, such as the branches of an If."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            yield node
            for attribute in node.attribute:
                graphs += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)


def _has_definition(name: str, opset: int) -> bool:
    try:
        schema: Any = onnx.defs.get_schema(name, opset)  # its type stub lacks these two
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function
