"""Identity and conversion of element types."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import require_unquantized
from mlhood.compiler.hir.types import ELEMENTS, MAX_RANK, STORED, TensorType
from mlhood.compiler.hir.values import Constant, Value
from mlhood.compiler.operators.base import Elementwise, Movement
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.errors import CompilerError


def number_of(element: str) -> int:
    """Return the number by which ONNX identifies an element type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(element)))


_BY_NUMBER = {number_of(element): element for element in ELEMENTS}


@dataclass(frozen=True)
class Cast(Elementwise):
    """The same numbers with another element type; conversion to integers rounds towards zero."""

    element: str

    onnx = ("Cast", "CastLike")
    family = "quantization"

    def infer(self, x: TensorType) -> TensorType:
        require_unquantized(x)
        return TensorType(self.element, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x.astype(self.element)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Cast", *inputs, name=name, to=number_of(self.element))

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        x = source.input(0)
        like = source.op_type == "CastLike"
        element = source.input(1).type.element if like else element_of(source.attribute("to", 0))
        if element == "float8_e8m0fnu" != x.type.element:
            raise source.unsupported("conversion to float8_e8m0fnu is not supported, only from it")
        if element.startswith("float8") and source.attribute("saturate", 1):
            return saturated(source, x, element)
        return source.add(cls(element), x)


def saturated(source: OnnxNode, x: Value, element: str) -> Value:
    """Return x as a float of 4 or 8 bits, where numbers beyond its range become its largest and smallest ones."""
    if not x.type.is_float:
        x = source.add(Cast("float32"), x)
    largest = float(ml_dtypes.finfo(element).max)
    low, high = (source.constant(np.array(limit, x.type.dtype)) for limit in (-largest, largest))
    return source.add(Cast(element), source.call("Clip", x, low, high))


def widened(graph: Graph, x: Value) -> Value:
    """Return x in the element type in which operators compute on it, if its own is only stored."""
    if x.type.element not in STORED:
        return x
    wide = STORED[x.type.element]
    if isinstance(x, Constant):
        return graph.constant(f"{x.name}.{wide}", x.data.astype(wide))
    return graph.add(Cast(wide), x, name=f"{x.name}.{wide}").outputs[0]


def element_of(number: int) -> str:
    """Return the element type with a number in ONNX.

    Raises:
        CompilerError: The element type is not supported.
    """
    if number in _BY_NUMBER:
        return _BY_NUMBER[number]
    kinds = TensorProto.DataType
    raise CompilerError(
        "the element type is not supported",
        expected=", ".join(ELEMENTS),
        got=kinds.Name(number) if number in kinds.values() else number,  # type: ignore[arg-type]
    )


def array_of(tensor: TensorProto) -> np.ndarray:
    """Return the array of an ONNX tensor.

    Raises:
        CompilerError: The element type is not supported, or the data are missing or do not match the shape.
    """
    element_of(tensor.data_type)
    where = f"tensor {tensor.name!r}" if tensor.name else None
    if tensor.data_location == TensorProto.EXTERNAL:
        raise CompilerError("the tensor's data are in another file", where=where, todo="load the model from its path")
    try:
        return numpy_helper.to_array(tensor)
    except Exception as error:  # numpy_helper raises various classes for invalid data
        raise CompilerError(
            "a constant cannot be read",
            where=where,
            expected=f"the elements of a tensor of shape {list(tensor.dims[:MAX_RANK])}",
            got=error,
            todo="export the model again",
        ) from error


class Identity(Elementwise, Movement):
    """y = x."""

    onnx = ("Identity",)
    moves = True
    family = "other"

    def infer(self, x: TensorType) -> TensorType:
        return x

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x


OPERATORS = (Cast, Identity)
