"""Functions of 8-bit integers, by a table of 256 entries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mlhood.compiler.hir.operator import Operator, namespace, require
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators import elementwise
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.base import MADE_BY_PASS, NO_PRODUCTS, IntegerArithmetic
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.rescale import parameters_of, quantized_type, require_per_tensor
from mlhood.errors import CompilerError

_FUNCTIONS: dict[str, type[Operator]] = {operator.__name__: operator for operator in elementwise.OPERATORS}


def as_function(operator: Operator) -> Activation | None:
    """Return an operator as the attribute of a `Lookup`, its name and attributes; None if it is not unary."""
    return (operator.name, *operator.attributes.values()) if operator.name in _FUNCTIONS else None


def function_of(function: Activation) -> Operator:
    """Return the operator of a `Lookup`'s attribute.

    Raises:
        CompilerError: The function is unknown, or its attributes are invalid.
    """
    name, *attributes = function or ("",)
    if name not in _FUNCTIONS:
        raise CompilerError("lookup tables do not support this function", expected=", ".join(_FUNCTIONS), got=function)
    try:
        return _FUNCTIONS[str(name)](*attributes)
    except TypeError as error:
        raise CompilerError("invalid attributes of the function", got=function) from error


@dataclass(frozen=True)
class Lookup(IntegerArithmetic, Operator):
    """y = function(x), read from a table with one entry for each of the 256 possible values of x.

    The table follows from the parameters of x and y; no range is assumed for x. Where the function is not a number, the
    entry represents zero.

    Attributes:
        function: A unary operator in the form of an `Activation`: ("Sigmoid",), ("Elu", 1.0, 1.0).
        quantization: The result's parameters.
    """

    function: Activation
    quantization: Quantization

    family = "other"
    macs = NO_PRODUCTS
    from_onnx = MADE_BY_PASS

    def infer(self, x: TensorType) -> TensorType:
        require_per_tensor(x)
        require(x.dtype.itemsize == 1, "a lookup requires integers of 8 bits", expected="int8 or uint8", got=x.element)
        function_of(self.function)
        return quantized_type(x.element, x.shape, self.quantization)

    def table(self, x: TensorType) -> np.ndarray:
        """Return the table for an input of this type: 256 integers, the first for the smallest value of x."""
        return _table(self.function, x.element, parameters_of(x), self.quantization)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        return namespace(x).asarray(self.table(types[0]))[x.astype(np.int64) - np.iinfo(x.dtype).min]

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str | None:
        return function_of(self.function).to_onnx(writer, inputs, name)


@lru_cache(maxsize=256)
def _table(function: Activation, element: str, of_x: Quantization, of_y: Quantization) -> np.ndarray:
    limits = np.iinfo(element)
    stored = np.arange(limits.min, limits.max + 1)
    x = ((stored - of_x.offset[0]) * of_x.scale[0]).astype(np.float32)
    with np.errstate(all="ignore"):
        y = np.nan_to_num(function_of(function).evaluate(x)) / np.float32(of_y.scale[0])
    table = np.clip(np.rint(y) + of_y.offset[0], limits.min, limits.max).astype(element)
    table.flags.writeable = False
    return table


OPERATORS = (Lookup,)
