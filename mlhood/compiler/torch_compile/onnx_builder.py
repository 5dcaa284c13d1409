"""Collect the ONNX nodes to which the operators of a torch graph are translated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
DTYPES: dict[torch.dtype, int] = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.bool: TensorProto.BOOL,
}


class NotTranslated(Exception):
    """The operator, or these arguments of it, have no translation: torch executes it."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of the torch graph, under its name in the ONNX graph.

    Args:
        name: The name.
        shape: Lengths of its axes.
        dtype: Element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


class OnnxBuilder:
    """The nodes and constants of an ONNX graph under construction.

    Attributes:
        nodes: The nodes, in order.
        outputs: The tensors that the node of the torch graph being translated has to return; its rule reads their
            shapes and element types.
        used: Which of these outputs are read; a rule returns None for the others.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.outputs: tuple[Tensor, ...] = ()
        self.used: tuple[bool, ...] = ()
        self._label = "node"
        self._taken: set[str] = set()
        self._initializers: list[onnx.TensorProto] = []

    def reserve(self, name: str) -> None:
        """Keep a name for an input of the graph."""
        self._taken.add(name)

    def start(self, label: str, outputs: tuple[Tensor, ...], used: tuple[bool, ...]) -> None:
        """Begin the translation of one node of the torch graph.

        Args:
            label: What its ONNX nodes are named after.
            outputs: See the attribute.
            used: See the attribute.
        """
        self._label, self.outputs, self.used = label, outputs, used

    @property
    def output(self) -> Tensor:
        """The first output of the torch graph's node."""
        return self.outputs[0]

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output, and return the output's name; attributes that are None are left out."""
        return self.emit_all(operator, 1, *inputs, **attributes)[0]

    def emit_all(self, operator: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """Add a node with several outputs, and return their names."""
        names = tuple(self._name() for _ in range(count))
        given = {name: value for name, value in attributes.items() if value is not None}
        if self.output.dtype == torch.float64 and any(map(_is_rounded, given.values())):
            raise NotTranslated("ONNX has attributes in float32")
        self.nodes.append(helper.make_node(operator, inputs, names, name=names[0], **given))
        return names

    def constant(self, value: Any, dtype: torch.dtype | np.dtype | type = np.int64) -> str:
        """Add a constant, and return its name."""
        element = helper.tensor_dtype_to_np_dtype(DTYPES[dtype]) if isinstance(dtype, torch.dtype) else dtype
        name = self._name("constant")
        try:
            with np.errstate(over="raise"):
                array = np.array(value, element)
        except (OverflowError, ValueError, FloatingPointError) as error:
            raise NotTranslated(f"a number that {np.dtype(element)} does not have") from error
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def cast(self, x: Tensor, dtype: torch.dtype) -> str:
        """Return the name of a tensor converted to an element type."""
        if x.dtype == dtype:
            return x.name
        return self.emit("Cast", x.name, to=onnx_element(dtype))

    def model(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], name: str) -> onnx.ModelProto:
        """Return the model; its inputs have exactly these shapes."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(x.name, onnx_element(x.dtype), x.shape) for x in inputs],
            [helper.make_tensor_value_info(x.name, onnx_element(x.dtype), x.shape) for x in outputs],
            self._initializers,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def _name(self, kind: str = "") -> str:
        base = name = f"{self._label}.{kind}" if kind else self._label
        count = 1
        while name in self._taken:
            count += 1
            name = f"{base}.{count}"
        self._taken.add(name)
        return name


def _is_rounded(attribute: Any) -> bool:
    return isinstance(attribute, float) and float(np.float32(attribute)) != attribute


def onnx_element(dtype: torch.dtype) -> int:
    """Return ONNX's number of an element type.

    Raises:
        NotTranslated: The compiler does not have it.
    """
    if dtype not in DTYPES:
        raise NotTranslated(f"element type {dtype}")
    return DTYPES[dtype]
