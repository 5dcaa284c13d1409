"""From a graph of ATen's operators to an ONNX model, for inputs of certain shapes."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

# Loading them fills the table.
from mlhood.compiler.torch_compile import aten_elements, aten_layers  # noqa: F401
from mlhood.compiler.torch_compile.aten import INTEGER_FUNCTIONS, RULES
from mlhood.compiler.torch_compile.onnx_builder import NotTranslated, OnnxBuilder, Tensor, onnx_element

_CPU = torch.device("cpu")
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
    builder = OnnxBuilder()
    values: dict[Node, Any] = {}
    placeholders = module.graph.find_nodes(op="placeholder")
    for node in placeholders:
        builder.reserve(node.name)
        values[node] = described(node.name, node.meta["val"])
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            values[node] = translate_node(builder, node, values)
    returned: Any = module.graph.output_node().args[0]
    outputs: dict[str, Node] = {}
    results = []
    for node in returned if isinstance(returned, (tuple, list)) else [returned]:
        if not isinstance(values[node], Tensor):
            results.append(Result(number=int(values[node])))
            continue
        base = _base(node, node.meta["val"].untyped_storage()._cdata)
        if base.op != "placeholder":
            outputs[values[base].name] = base
        owner = placeholders.index(base) if base.op == "placeholder" else values[base].name
        results.append(Result(base=owner, view=None if base is node else _view(node.meta["val"], base.meta["val"])))
    inputs = [values[node] if isinstance(values[node], Tensor) else None for node in placeholders]
    return Translation(
        builder.model([x for x in inputs if x is not None], [values[base] for base in outputs.values()], name),
        tuple(None if x is None else x.name for x in inputs),
        {name: base.meta["val"].stride() for name, base in outputs.items()},
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


def described(name: str, value: Any) -> Any:
    """Return a tensor as the rules see it, and an integer as a number.

    Raises:
        NotTranslated: It is neither, or of an element type or on a device that the compiler does not have.
    """
    if isinstance(value, torch.Tensor):
        if value.device != _CPU or value.layout != torch.strided:
            raise NotTranslated(f"a tensor on {value.device}, {value.layout}")
        onnx_element(value.dtype)
        return Tensor(name, tuple(_number(length) for length in value.shape), value.dtype)
    return _number(value)


def _number(value: Any) -> int:
    """Return an integer; a symbolic one as the number of the trace."""
    if isinstance(value, int):
        return int(value)
    hint = value.node.hint if isinstance(value, torch.SymInt) else None
    if hint is None:
        raise NotTranslated(f"a value that is not a tensor or a known integer: {type(value).__name__}")
    return int(hint)


def translate_node(builder: OnnxBuilder, node: Node, values: Mapping[Node, Any]) -> Any:
    """Add the ONNX nodes for one node, and return what it computes: a `Tensor`, a tuple of them, or a number.

    Args:
        builder: Where to add them.
        node: A node whose `meta["val"]` describes its result.
        values: What the nodes before it compute.

    Raises:
        NotTranslated: It has no translation.
    """
    if node.op == "get_attr":
        return _stored_constant(builder, node)
    if node.target is operator.getitem:
        if not isinstance(node.args[0], Node):
            raise NotTranslated("an element of a constant")
        return values[node.args[0]][node.args[1]]
    if node.target in INTEGER_FUNCTIONS:
        return _number(node.meta["val"])
    value = node.meta.get("val")
    several = isinstance(value, (tuple, list))
    expected = tuple(described(node.name, each) for each in (value if several else [value]))
    used = _used(node, len(expected), several)
    before = len(builder.nodes)
    try:
        if node.target not in RULES:
            raise NotTranslated(f"no rule for {node.target}")
        builder.start(label(node), expected, used)
        names = RULES[node.target](builder, *map_arg(_arguments(node), lambda each: values[each]))
    except NotTranslated:
        if node.target not in _decompositions() or node.is_impure():
            raise
        del builder.nodes[before:]
        names = _decomposed(builder, node, values, expected, used)
    named = names if isinstance(names, tuple) else (names,)
    outputs = tuple(
        None if name is None else Tensor(name, each.shape, each.dtype)
        for name, each in zip(named, expected, strict=True)
    )
    return outputs if several else outputs[0]


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Return how torch writes operators with others."""
    from torch._decomp import core_aten_decompositions  # loads a second's worth of modules

    return core_aten_decompositions()


def _decomposed(
    builder: OnnxBuilder, node: Node, values: Mapping[Node, Any], expected: tuple[Tensor, ...], used: tuple[bool, ...]
) -> tuple[str | None, ...]:
    """Translate a node as torch's decomposition of its operator, and return the names of its results.

    A decomposition is right about values only. Strides may differ from the operator's, so nothing but the translation
    sees it; and a result of another shape or type is not the operator's. Such is attention's second, the logarithm of
    the sums of exponentials, which a backward kernel reads: where it is used, torch executes the node.
    """
    table = _decompositions()
    tensors = [each for each in node.all_input_nodes if isinstance(values[each], Tensor)]

    def function(*inputs: torch.Tensor) -> Any:
        given = {**values, **dict(zip(tensors, inputs, strict=True))}
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: given[each])
        results = table[node.target](*args, **kwargs)
        return (*results,) if isinstance(results, (tuple, list)) else (results,)

    with FakeTensorMode():
        inputs = [torch.empty(values[each].shape, dtype=values[each].dtype) for each in tensors]
        others = {overload: each for overload, each in table.items() if overload not in RULES}
        graph = make_fx(function, decomposition_table=others)(*inputs).graph
    output = graph.output_node()
    results: Any = output.args[0]
    wanted = [i for i, is_used in enumerate(used) if is_used]
    if not all(_is_like(results[i], expected[i]) for i in wanted):
        raise NotTranslated(f"a result that torch's decomposition of {node.target} does not give")
    output.args = ([results[i] for i in wanted],)
    graph.eliminate_dead_code()
    inner: dict[Node, Any] = dict(zip(graph.find_nodes(op="placeholder"), map(values.get, tensors), strict=True))
    for each in graph.nodes:
        if each.op not in ("placeholder", "output"):
            each.meta["nn_module_stack"] = node.meta.get("nn_module_stack")
            inner[each] = translate_node(builder, each, inner)
    builder.start(label(node), expected, used)
    return tuple(
        builder.emit("Identity", inner[results[i]].name) if is_used else None for i, is_used in enumerate(used)
    )


def _is_like(result: Any, tensor: Tensor) -> bool:
    value = result.meta["val"] if isinstance(result, Node) else None
    return isinstance(value, torch.Tensor) and value.shape == tensor.shape and value.dtype == tensor.dtype


def _stored_constant(builder: OnnxBuilder, node: Node) -> Tensor:
    value = node.meta.get("val")
    data: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        data = getattr(data, part, None)
    if not isinstance(data, torch.Tensor) or value is None:
        raise NotTranslated("an attribute that is not a tensor")
    tensor = described(node.name, data)
    builder.start(node.name, (tensor,), (True,))
    array = data.detach().contiguous().numpy()
    return Tensor(builder.emit("Identity", builder.constant(array, array.dtype)), tensor.shape, tensor.dtype)


def _arguments(node: Node) -> tuple[Any, ...]:
    """Return the arguments in the order of the operator's schema, with its defaults."""
    target: Any = node.target
    arguments = []
    for i, argument in enumerate(target._schema.arguments):
        if i < len(node.args):
            arguments.append(node.args[i])
        else:
            arguments.append(node.kwargs.get(argument.name, argument.default_value))
    return tuple(arguments)


def _used(node: Node, count: int, several: bool) -> tuple[bool, ...]:
    if not several:
        return (True,)
    read = [user.args[1] for user in node.users if user.target is operator.getitem and user.users]
    whole = any(user.target is not operator.getitem for user in node.users)
    return tuple(whole or i in read for i in range(count))


def label(node: Node) -> str:
    """Return a name for a node: that of the module which it is from, and its own."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    module = re.sub(r"^L\['\w+'\]\.?", "", path)  # the variable that holds the whole model
    plain = re.sub(r"\W+", ".", module).strip(".")
    return f"{plain}.{node.name}" if plain else node.name


def placeholder_array(tensor: Tensor) -> np.ndarray:
    """Return zeros in the place of a weight, without memory: a type rule needs no more."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx_element(tensor.dtype))
    return np.broadcast_to(np.zeros((), dtype), tensor.shape)
