"""From a graph of ATen's operators to an ONNX model, for inputs of certain shapes."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.fx.traceback import preserve_node_meta
from torch.onnx._internal.exporter._core import _translate_fx_graph
from torch.onnx._internal.exporter._ir_passes import add_opset_imports
from torch.onnx._internal.fx.passes import InsertTypePromotion
from torch.onnx._internal.fx.passes.type_promotion import TypePromotionTable
from torch.utils._pytree import tree_leaves

from mlhood.compiler.torch_compile.decompositions import (
    aten,
    decompositions,
    has_elements,
    is_exported,
    registry,
)
from mlhood.exchange import silence

DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)
_CPU = torch.device("cpu")
_LOOK_UPS = (aten.embedding.default, aten.index_select.default, aten.gather.default)


class NotTranslated(Exception):
    """The operator, or these arguments of it, have no translation: torch executes it."""


View = tuple[tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True)
class Result:
    """One result of a translated graph: a number that the shapes determine, or a tensor.

    Args:
        number: The number; None for a tensor.
        base: What owns the tensor's memory: an output of the model by its name, or an argument by its position.
        view: The tensor's shape, its strides, and its offset from the base in elements; None for the base itself.
    """

    number: int | None = None
    base: str | int = ""
    view: View | None = None


@dataclass(frozen=True)
class Translation:
    """A translated graph.

    Args:
        model: The model.
        inputs: Name of the model's input for each argument; None for a number.
        strides: Distance of neighbours along each axis of the model's outputs in torch, in elements.
        results: The graph's results, in order.
    """

    model: onnx.ModelProto
    inputs: tuple[str | None, ...]
    strides: Mapping[str, tuple[int, ...]]
    results: tuple[Result, ...]


def translate(module: GraphModule, arguments: Sequence[Any], name: str) -> Translation:
    """Return a graph as an ONNX model.

    The model has no output for a result that is a view: torch takes it from the tensor that it shares memory with,
    which is an argument or an output of the model.

    Args:
        module: A functional graph of ATen's operators, as AOTAutograd makes them.
        arguments: Its arguments, tensors and integers: their shapes and numbers become the model's.
        name: Name of the model's graph.

    Raises:
        NotTranslated: An operator has no translation.
    """
    FakeTensorProp(module).propagate(*arguments)
    placeholders = module.graph.find_nodes(op="placeholder")
    returned: Any = module.graph.output_node().args[0]
    outputs: list[Node] = []
    results = []
    for node in returned if isinstance(returned, (tuple, list)) else [returned]:
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            results.append(Result(number=int(value)))
            continue
        base = _base(node, value.untyped_storage()._cdata)
        if base.op != "placeholder" and base not in outputs:
            outputs.append(base)
        owner = placeholders.index(base) if base.op == "placeholder" else output_name(outputs.index(base))
        results.append(Result(base=owner, view=None if base is node else _view(value, base.meta["val"])))
    model = onnx_model(module, arguments, outputs, name)
    names = iter(model.graph.input)
    return Translation(
        model,
        tuple(next(names).name if isinstance(each, torch.Tensor) else None for each in arguments),
        {output_name(i): base.meta["val"].stride() for i, base in enumerate(outputs)},
        tuple(results),
    )


def _view(tensor: torch.Tensor, base: torch.Tensor) -> View:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset() - base.storage_offset())


def _base(node: Node, storage: int) -> Node:
    """Return the first node with a result in some memory, from which a node got its own."""
    for each in node.all_input_nodes:
        value = each.meta["val"]
        tensors = value if isinstance(value, (tuple, list)) else (value,)
        if any(isinstance(x, torch.Tensor) and x.untyped_storage()._cdata == storage for x in tensors):
            base = _base(each, storage)
            return node if isinstance(base.meta["val"], (tuple, list)) else base
    return node


def onnx_model(module: GraphModule, arguments: Sequence[Any], outputs: Sequence[Node], name: str) -> onnx.ModelProto:
    """Return the ONNX model of a graph: its inputs are the arguments that are tensors.

    Args:
        module: A functional graph of ATen's operators.
        arguments: Its arguments.
        outputs: The nodes whose results are the model's outputs.
        name: Name of the model's graph.

    Raises:
        NotTranslated: An operator or an element type has no translation.
    """
    graph = _decomposed(module, arguments, outputs)
    for node in graph.graph.nodes:
        _check(node)
    InsertTypePromotion(graph, _promotions()).run()
    model = ir.Model(ir.Graph([], [], nodes=[], name=name), ir_version=10)
    try:
        with silence():
            _translate_fx_graph(
                graph.graph, model, graph_like=model.graph, owned_graphs={}, lower="at_conversion", registry=registry()
            )
    except Exception as error:
        raise NotTranslated(f"torch does not export it: {str(error.__cause__ or error).splitlines()[0]}") from error
    add_opset_imports(model)
    RemoveUnusedNodesPass()(model)
    taken: dict[str, int] = {}
    for node in model.graph:
        label = _label(node.meta["node"]) + (".constant" if node.op_type == "Constant" else "")
        for value in node.outputs:
            taken[label] = count = taken.get(label, 0) + 1
            value.name = label if count == 1 else f"{label}.{count}"
        node.name = node.outputs[0].name
    for i, value in enumerate(model.graph.outputs):
        value.name = output_name(i)
    return ir.to_proto(model)


def alone(node: Node) -> tuple[GraphModule, list[Any], list[Node]]:
    """Return a graph of one node, arguments for it without data, and its nodes with the tensors that are used."""
    if not has_elements(node):
        raise NotTranslated(f"a number that {node.target} does not have as an element")
    graph = Graph()
    arguments = [concrete(each.meta["val"]) for each in node.all_input_nodes]
    inputs = {each: graph.placeholder(each.name) for each in node.all_input_nodes}
    copy = graph.node_copy(node, inputs.__getitem__)
    outputs = [copy]
    if isinstance(node.meta["val"], (tuple, list)):
        used = [each for each in node.users if each.target is operator.getitem and each.users]
        outputs = [graph.node_copy(each, lambda _: copy) for each in used]
    return GraphModule(node.graph.owning_module or {}, graph), arguments, outputs


def concrete(value: Any) -> Any:
    """Return a tensor without data whose lengths are numbers, and a symbolic integer as the number of the trace."""
    if isinstance(value, torch.Tensor):
        with FakeTensorMode():
            return torch.empty([*map(concrete, value.shape)], dtype=value.dtype, device=value.device)
    hint = value.node.hint if isinstance(value, torch.SymInt) else value
    if not isinstance(hint, int):
        raise NotTranslated(f"a value that is not a tensor or a known integer: {type(value).__name__}")
    return int(hint)


class _Replay(Interpreter):
    """Run a graph's operators again, whose intermediate results may have other strides than torch's."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in (aten.view.default, aten._unsafe_view.default):
            return args[0].reshape(args[1])
        if target in _LOOK_UPS:  # a negative index is an error in torch, where ONNX counts from the end
            table, *axis, indices = args[: 2 if target is aten.embedding.default else 3]
            length = table.shape[axis[0] if axis else 0]
            args = (table, *axis, torch.where(indices < 0, length, indices), *args[len(axis) + 2 :])
        results = super().call_function(target, args, kwargs)
        if target is aten._native_batch_norm_legit_no_training.default:  # the others are empty
            return results[0], *(torch.zeros(0) for _ in results[1:])
        return results


def _decomposed(module: GraphModule, arguments: Sequence[Any], outputs: Sequence[Node]) -> GraphModule:
    """Return what computes some nodes of a graph, of operators that torch exports."""
    part = Graph()
    copies: dict[Node, Node] = {}
    part.graph_copy(module.graph, copies)
    part.output([copies[node] for node in outputs])
    replay = _Replay(GraphModule(module, part))

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = iter(tensors)
        results = replay.run(*[next(given) if isinstance(x, torch.Tensor) else x for x in arguments])
        return [x.clone() for x in results]  # which makes each output a value of the model's own

    with FakeTensorMode(allow_non_fake_inputs=True), preserve_node_meta(), torch.no_grad():
        tensors = [x for x in arguments if isinstance(x, torch.Tensor)]
        inputs = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in tensors]
        graph = make_fx(function, decomposition_table=decompositions())(*inputs)
    graph.graph.eliminate_dead_code()
    for node in graph.graph.find_nodes(op="get_attr"):
        node.meta["val"] = getattr(graph, node.target)
    return graph


def has_effect(node: Node) -> bool:
    """Return whether a node has an effect, such as drawing the next random numbers."""
    return node.op == "call_function" and node.is_impure()


def _check(node: Node) -> None:
    """Raise NotTranslated if the compiler does not have a node or its element type."""
    if node.op == "output":
        return
    if not has_elements(node):
        raise NotTranslated(f"a number that {node.target} does not have as an element")
    if not is_exported(node):
        raise NotTranslated(f"arguments or results of {node.target} that torch does not export")
    if has_effect(node):
        raise NotTranslated(f"an effect or random numbers: {node.target}")
    for value in tree_leaves(node.meta["val"]):
        if isinstance(value, torch.Tensor):
            if value.device != _CPU or value.layout != torch.strided:
                raise NotTranslated(f"a tensor on {value.device}, {value.layout}")
            if value.dtype not in DTYPES:
                raise NotTranslated(f"element type {value.dtype}")
        elif value is not None:
            raise NotTranslated(f"a value that is not a tensor: {type(value).__name__}")


@functools.cache
def _promotions() -> TypePromotionTable:
    return TypePromotionTable()


def output_name(position: int) -> str:
    """Return the name of one of a model's outputs."""
    return f"output.{position}"


def _label(node: Node) -> str:
    """Return a name for a node: that of the module which it is from, and its own."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    module = re.sub(r"^L\['\w+'\]\.?", "", path)  # the variable that holds the whole model
    plain = re.sub(r"\W+", ".", module).strip(".")
    return f"{plain}.{node.name}" if plain else node.name


def placeholder_array(tensor: torch.Tensor) -> np.ndarray:
    """Return zeros in the place of a weight, without memory: a type rule needs no more."""
    return np.broadcast_to(torch.zeros((), dtype=tensor.dtype).numpy(), tensor.shape)
