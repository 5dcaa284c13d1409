"""Which nodes of a captured graph the compiler runs, and which torch does."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.torch_compile import aten_movement
from mlhood.compiler.torch_compile.aten import INTEGER_FUNCTIONS, RULES
from mlhood.compiler.torch_compile.onnx_builder import NotTranslated, OnnxBuilder, Tensor
from mlhood.compiler.torch_compile.subgraph import Subgraph
from mlhood.compiler.torch_compile.translation import described, placeholder_array, translate_node
from mlhood.errors import CompilerError


class _Support(OperatorSupportBase):
    """Whether the compiler runs a node: its rule is tried, and what it gives is imported, each node on its own."""

    def __init__(self, weights: set[str]) -> None:
        self.reasons: dict[Node, str | None] = {}
        self._weights = weights

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op not in ("call_function", "get_attr"):
            return False
        if node not in self.reasons:
            self.reasons[node] = self._reason(node)
        return self.reasons[node] is None

    def _reason(self, node: Node) -> str | None:
        if node.target is operator.getitem:
            source = node.args[0]
            supported = isinstance(source, Node) and self.is_node_supported({}, source)
            return None if supported else "an element of what torch computes"
        try:
            values = {each: _operand(each) for each in node.all_input_nodes}
            builder = OnnxBuilder()
            for each in values:
                builder.reserve(each.name)
            outputs = translate_node(builder, node, values)
            self._import(builder, values, outputs)
        except NotTranslated as error:
            return str(error)
        except CompilerError as error:
            return error.one_line()
        return None

    def _import(self, builder: OnnxBuilder, values: Mapping[Node, Any], outputs: Any) -> None:
        if not builder.nodes:
            return
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        inputs = {node: value for node, value in values.items() if isinstance(value, Tensor)}
        constants = {
            value.name: placeholder_array(value) for node, value in inputs.items() if node.name in self._weights
        }
        model = builder.model(list(inputs.values()), [each for each in tensors if each is not None], "node")
        graph = import_model(model, constants=constants)
        for tensor in tensors:
            if tensor is not None and graph.outputs[tensor.name].type.shape != tensor.shape:
                raise NotTranslated(f"a shape other than torch's, {tensor.shape}")


def _operand(node: Node) -> Any:
    """Return what a node computes, as a rule sees it."""
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return tuple(described(f"{node.name}.{i}", each) for i, each in enumerate(value))
    return described(node.name, value)


def partition(module: GraphModule, weights: set[str], target: str) -> tuple[list[Subgraph], dict[str, str]]:
    """Replace what the compiler runs by `Subgraph`s, in place.

    Args:
        module: A functional graph of ATen's operators; each node's `meta["val"]` describes its result.
        weights: Names of the placeholders that are weights.
        target: The target to run on.

    Returns:
        The subgraphs, and why torch runs each of the other nodes, by their names.
    """
    support = _Support(weights)
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitions = [part for part in partitioner.propose_partitions() if any(map(_computes, part.nodes))]
    partitioner.fuse_partitions(partitions)
    parts = []
    calls = [node for node in module.graph.nodes if node.op == "call_module"]
    for i, node in enumerate(calls):
        name = str(node.target)
        submodule = getattr(module, name)
        is_weight = [isinstance(argument, Node) and argument.name in weights for argument in node.args]
        parts.append(Subgraph(submodule, is_weight, target, f"part {i + 1}"))
        delattr(module, name)
        setattr(module, name, parts[-1])
    module.recompile()
    left = {node.name: str(reason) for node, reason in support.reasons.items() if reason is not None}
    return parts, left


def _computes(node: Node) -> bool:
    """Return whether it is worth to leave torch for a node: not only to move elements."""
    movements = aten_movement.__name__
    if node.target is operator.getitem or node.target in INTEGER_FUNCTIONS or node.op == "get_attr":
        return False
    rule = RULES.get(node.target)
    return rule is not None and rule.__module__ != movements and rule.__name__ != "_identity"
