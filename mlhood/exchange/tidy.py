"""What is done to the exporter's graph before it is written: names for people, nothing of this machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import onnx
import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.rules import common as rules

# What torch writes although it does nothing: the shapes it computes, neutral operands, a bias of zeros.
_SIMPLIFICATIONS = [
    rules.materialize_reshape_shape_rule,
    rules.no_op_expand_rule,
    rules.mul_by_1_rule,
    rules.add_0_rule,
    rules.remove_optional_bias_from_conv_rule,
]

# What the exporter's constants are to the node that reads them.
_ROLES = {
    "Reshape": "shape",
    "ReduceMean": "axes",
    "Squeeze": "axes",
    "Unsqueeze": "axes",
    "Transpose": "axes",
}


def keep_batchnorm_graph(model: ir.Model) -> ir.Model:
    """Simplify, in place, a graph that was exported without optimisation, but leave BatchNormalization alone.

    torch's own optimisation folds it into the convolution. These are the rules of it that a network of
    convolutions needs: constants folded, the shape of a Reshape written down, what does nothing removed.
    """
    optimizer.inline(model)
    for _ in range(2):
        optimizer.fold_constants_ir(model, onnx_shape_inference=True)
        rewriter.rewrite(model, _SIMPLIFICATIONS)
    ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.RemoveUnusedNodesPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedOpsetsPass(),
    )(model)
    return model


def tidy(model: ir.Model) -> onnx.ModelProto:
    """Name nodes and values after the modules, and drop the exporter's notes: they hold paths."""
    _rename(model.graph)
    common.ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()
    proto = ir.to_proto(model)
    for part in (proto, proto.graph):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    weights = {tensor.name for tensor in proto.graph.initializer}
    for index in reversed(range(len(proto.graph.value_info))):
        if proto.graph.value_info[index].name in weights:  # an initializer says its type itself
            del proto.graph.value_info[index]
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info, *proto.graph.initializer):
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    return proto


def _rename(graph: ir.Graph) -> None:
    fixed = {value.name for value in (*graph.inputs, *graph.outputs, *graph.initializers.values())}
    names = _Names({name for name in fixed if name})
    outputs = set(graph.outputs)
    for node in graph:
        name = names.take(_wanted(node))
        node.name = name
        for index, value in enumerate(node.outputs):
            if value not in outputs and value.name:
                value.name = name if index == 0 else names.take(f"{name}_{index}")
        for value in node.inputs:
            if value is not None and value.is_initializer() and str(value.name).startswith("val_"):
                value.name = names.take(f"{name}.{_ROLES.get(node.op_type, 'constant')}")


class _Names:
    """Hands out names, each once."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken

    def take(self, wanted: str) -> str:
        name = next(name for name in _candidates(wanted) if name not in self._taken)
        self._taken.add(name)
        return name


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1


def _wanted(node: ir.Node) -> str:
    """Return the module that owns the node's weight, else the module it was traced in, else its operator."""
    for value in node.inputs:
        if value is not None and value.is_initializer() and (value.name or "").endswith(".weight"):
            return str(value.name).removesuffix(".weight")
    scopes, classes = _notes(node, "name_scopes"), _notes(node, "class_hierarchy")
    module = scopes[-2] if len(scopes) >= 2 else ""
    operator = node.op_type.lower()
    if not module:
        return operator
    # A layer of torch is one operator; an operator in somebody's own module is one of many.
    is_layer = len(classes) >= 2 and classes[-2].startswith("torch.nn.modules.")
    return module if is_layer else f"{module}.{operator}"


def _notes(node: ir.Node, key: str) -> list[str]:
    try:
        return ast.literal_eval(node.metadata_props.get(f"pkg.torch.onnx.{key}", "[]"))
    except (SyntaxError, ValueError):
        return []
