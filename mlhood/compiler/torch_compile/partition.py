"""Which nodes of a captured graph the compiler runs, and which torch does."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.base import Movement
from mlhood.compiler.torch_compile.onnx_builder import NotTranslated, OnnxBuilder, Tensor
from mlhood.compiler.torch_compile.subgraph import Subgraph
from mlhood.compiler.torch_compile.translation import described, placeholder_array, translate_node
from mlhood.errors import CompilerError

_LOGGER = logging.getLogger("mlhood.torch_compile")


class _Support(OperatorSupportBase):
    """Whether the compiler runs a node: its translation is tried, and imported, each node on its own.

    Attributes:
        reasons: Why torch runs a node; None if the compiler does.
        computing: Nodes that do not only move elements, for which it is not worth leaving torch.
    """

    def __init__(self, weights: set[str]) -> None:
        self.reasons: dict[Node, str | None] = {}
        self.computing: set[Node] = set()
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
            self._import(builder, values, outputs, node)
        except NotTranslated as error:
            return str(error)
        except CompilerError as error:
            return error.one_line()
        except Exception as error:  # a rule's or torch's own: the result stays right, but someone should know
            _LOGGER.warning("torch runs %s, whose translation failed: %s: %s", node, type(error).__name__, error)
            return " ".join(f"{type(error).__name__}: {error}".split())
        return None

    def _import(self, builder: OnnxBuilder, values: Mapping[Node, Any], outputs: Any, node: Node) -> None:
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
        if not all(isinstance(each.operator, Movement) for each in graph.nodes.values()):
            self.computing.add(node)


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
    groups = _between_effects(module, [list(part.nodes) for part in partitioner.propose_partitions()])
    chosen = [dict.fromkeys(nodes) for nodes in groups if not support.computing.isdisjoint(nodes)]
    fuse_by_partitions(module, chosen)
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


def _between_effects(module: GraphModule, parts: Iterable[list[Node]]) -> Iterator[list[Node]]:
    """Divide parts so that no node moves across one with an effect, such as drawing the next random numbers."""
    section, sections = 0, {}
    for node in module.graph.nodes:
        section += node.is_impure()
        is_element = node.target is operator.getitem  # it stays with the node that computes it
        sections[node] = sections[node.args[0]] if is_element else section
    for nodes in parts:
        divided: dict[int, list[Node]] = {}
        for node in nodes:
            divided.setdefault(sections[node], []).append(node)
        yield from divided.values()
