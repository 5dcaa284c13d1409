"""From a graph of ATen's operators to an ONNX model, for inputs of certain shapes."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

# Loading them fills the table.
from mlhood.compiler.torch_compile import aten_layers, aten_movement, aten_reductions  # noqa: F401
from mlhood.compiler.torch_compile.aten import INTEGER_FUNCTIONS, RULES
from mlhood.compiler.torch_compile.onnx_builder import NotTranslated, OnnxBuilder, Tensor, onnx_element

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Result:
    """One result of a translated graph: a number that the shapes determine, or a tensor.

    Args:
        number: The number; None for a tensor.
        name: The model's output.
        strides: Distance of neighbours along each axis, in elements, as torch has them.
    """

    number: int | None = None
    name: str = ""
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Translation:
    """A translated graph.

    Args:
        model: The model.
        inputs: Name of the model's input for each argument; None for a number.
        results: The graph's results, in order.
    """

    model: onnx.ModelProto
    inputs: tuple[str | None, ...]
    results: tuple[Result, ...]


def translate(module: GraphModule, arguments: Sequence[Any], name: str) -> Translation:
    """Return a graph as an ONNX model.

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
    inputs: list[Tensor | None] = []
    results: list[Any] = []
    for node in module.graph.find_nodes(op="placeholder"):
        builder.reserve(node.name)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = described(node.name, node.meta["val"])
            inputs.append(values[node] if isinstance(values[node], Tensor) else None)
        elif node.op == "output":
            results = list(node.args[0]) if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        else:
            values[node] = translate_node(builder, node, values)
    tensors = [values[node] for node in results if isinstance(values[node], Tensor)]
    given = [tensor for tensor in inputs if tensor is not None]
    model = builder.model(given, list(dict.fromkeys(tensors)), name)
    names = tuple(None if tensor is None else tensor.name for tensor in inputs)
    return Translation(model, names, tuple(_result(node, values[node]) for node in results))


def _result(node: Node, value: Any) -> Result:
    if isinstance(value, Tensor):
        return Result(name=value.name, strides=tuple(map(int, node.meta["val"].stride())))
    return Result(number=int(value))


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
        return values[_node(node.args[0])][node.args[1]]
    if node.target in INTEGER_FUNCTIONS:
        return _number(node.meta["val"])
    if node.target not in RULES:
        raise NotTranslated("no rule")
    value = node.meta["val"]
    several = isinstance(value, (tuple, list))
    described_outputs = [described(node.name, each) for each in (value if several else [value])]
    builder.start(label(node), tuple(described_outputs), _used(node, len(described_outputs), several))
    arguments = map_arg(_arguments(node), lambda each: values[each])
    names = RULES[node.target](builder, *arguments)
    named = names if isinstance(names, tuple) else (names,)
    outputs = tuple(
        None if name is None else Tensor(name, each.shape, each.dtype)
        for name, each in zip(named, described_outputs, strict=True)
    )
    return outputs if several else outputs[0]


def _node(argument: Any) -> Node:
    if not isinstance(argument, Node):
        raise NotTranslated("an element of a constant")
    return argument


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
