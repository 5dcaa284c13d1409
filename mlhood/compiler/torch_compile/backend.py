"""The backend of `torch.compile`: Dynamo captures graphs, AOTAutograd makes them functional, the compiler runs them.

    model = torch.compile(model, backend="mlhood")

What the compiler does not have is run by torch, so the result is the same for every model: values, strides, shared
memory and errors. Weights are constants; what records gradients runs forward in the compiler and backward in torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from mlhood.compiler.backends.targets import check_target
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.base import Movement
from mlhood.compiler.torch_compile.subgraph import Subgraph
from mlhood.compiler.torch_compile.translation import (
    NotTranslated,
    alone,
    concrete,
    has_effect,
    onnx_model,
    placeholder_array,
)
from mlhood.errors import CompilerError


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
        self._tried: dict[str, tuple[str | None, bool]] = {}

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
        if node.op == "call_function" and isinstance(node.meta.get("val"), (int, torch.SymInt)):
            return None  # arithmetic on lengths of axes, which are numbers when a graph is translated
        key = self._key(node)
        if key not in self._tried:
            self._tried[key] = self._try(node)
        reason, computes = self._tried[key]
        if computes:
            self.computing.add(node)
        return reason

    def _key(self, node: Node) -> str:
        """Return what the translation of a node depends on."""

        def described(each: Node) -> str:
            value, is_weight = each.meta.get("val"), each.name in self._weights
            return f"<{node.all_input_nodes.index(each)} {value!r} {is_weight}>"

        used = [each.args[1] for each in node.users if each.target is operator.getitem and each.users]
        constant = node.target if node.op == "get_attr" else ""
        return repr((str(node.target), map_arg((node.args, node.kwargs), described), used, constant))

    def _try(self, node: Node) -> tuple[str | None, bool]:
        """Return why the compiler cannot run a node, and whether it computes."""
        try:
            return None, self._import(node)
        except NotTranslated as error:
            reason = str(error)
        except CompilerError as error:
            reason = error.one_line()
        except Exception as error:  # torch's own, of a decomposition
            reason = " ".join(f"{type(error).__name__}: {error}".split())
        return reason, False

    def _import(self, node: Node) -> bool:
        module, arguments, outputs = alone(node)
        model = onnx_model(module, arguments, outputs, "node")
        tensors = [each for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)]
        constants = {
            value.name: placeholder_array(concrete(each.meta["val"]))
            for value, each in zip(model.graph.input, tensors, strict=True)
            if each.name in self._weights
        }
        graph = import_model(model, constants=constants)
        for output, each in zip(graph.outputs.values(), outputs, strict=True):
            expected = concrete(each.meta["val"])
            if output.type.shape != tuple(expected.shape) or output.type.element != str(expected.dtype).split(".")[1]:
                raise NotTranslated(f"a result other than torch's, {expected.dtype} {tuple(expected.shape)}")
        return not all(isinstance(each.operator, Movement) for each in graph.nodes.values())


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
        section += has_effect(node)
        is_element = node.target is operator.getitem  # it stays with the node that computes it
        sections[node] = sections[node.args[0]] if is_element else section
    for nodes in parts:
        divided: dict[int, list[Node]] = {}
        for node in nodes:
            divided.setdefault(sections[node], []).append(node)
        yield from divided.values()


_OPTIONS = ("target",)
DEFAULT_TARGET = "cpu"


@dataclass(frozen=True)
class Capture:
    """One graph that Dynamo captured.

    Args:
        code: The graph as a Python function of torch.
        parts: What the compiler runs.
        left: Why torch runs each of the other nodes, by name.
    """

    code: str
    parts: tuple[Subgraph, ...]
    left: Mapping[str, str]

    def __str__(self) -> str:
        lines = []
        for part in self.parts:
            if part.reason is not None:
                lines.append(f"  {part.name}: torch, {part.reason}")
            elif part.graph is None:
                lines.append(f"  {part.name}: not run yet")
            else:
                lines.append(f"  {part.name}: {len(part.graph.nodes)} nodes: {', '.join(part.graph.nodes)}")
        lines += [f"  torch runs {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


class Backend:
    """A backend of `torch.compile` that remembers what was captured.

    Args:
        target: The target to run on, one of `mlhood.compiler.backends.targets.TARGETS`.

    Attributes:
        captures: The captured graphs, in order.

    Raises:
        CompilerError: The target is unknown.
    """

    def __init__(self, target: str = DEFAULT_TARGET) -> None:
        check_target(target)
        self.target = target
        self.captures: list[Capture] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Return a function that runs a captured graph; called by Dynamo."""
        from torch._dynamo.backends.common import aot_autograd  # loads modules that only torch.compile needs

        # no decompositions: what torch runs, forward and backward, are eager's own operators
        compile_captured = aot_autograd(
            fw_compiler=self._forward, bw_compiler=_leave_to_torch, inference_compiler=self._forward
        )
        return compile_captured(module, inputs)

    def _forward(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        from torch._functorch._aot_autograd.utils import make_boxed_func
        from torch._guards import TracingContext, tracing
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        context = TracingContext.try_get()
        static = context.fw_metadata.static_input_indices if context and context.fw_metadata else []
        placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        weights = {placeholders[i] for i in static if i < len(placeholders)}
        code = module.code
        with unset_fake_temporarily(), tracing(None):  # constants of the graph are real tensors
            parts, left = partition(module, weights, self.target)
        self.captures.append(Capture(code, tuple(parts), left))
        return make_boxed_func(module.forward)


def _leave_to_torch(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(module.forward)


def mlhood(module: GraphModule, inputs: Sequence[Any], **arguments: Any) -> Callable[..., Any]:
    """Return a function that runs a captured graph: the backend that `torch.compile` finds by the name "mlhood".

    Args:
        module: The captured graph.
        inputs: Its inputs, parameters among them.
        arguments: `options`, a dict: {"target": "cpu"}; others of `torch.compile` are of no consequence.

    Raises:
        CompilerError: An option or the target is unknown.
    """
    options = dict(arguments.get("options") or {})
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise CompilerError("unknown option of the backend", expected=", ".join(_OPTIONS), got=", ".join(unknown))
    return Backend(options.get("target", DEFAULT_TARGET))(module, inputs)


def explain(model: Callable[..., Any], *inputs: Any, target: str = DEFAULT_TARGET) -> tuple[Capture, ...]:
    """Run a model once, compiled, and return the graphs that were captured: more than one where Dynamo breaks.

    Args:
        model: A module, or a function of tensors.
        inputs: Its arguments.
        target: The target to run on.

    Raises:
        CompilerError: The target is unknown.
    """
    backend = Backend(target)
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return tuple(backend.captures)
