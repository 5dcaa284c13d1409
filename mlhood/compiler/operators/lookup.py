"""Functions of 8-bit integers, by a table of all 256 values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mlhood.compiler.hir.operator import Operator, need
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators import elementwise
from mlhood.compiler.operators.activation import Activation
from mlhood.compiler.operators.base import MADE_BY_PASS, NO_PRODUCTS, IntegerArithmetic
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.rescale import is_whole, parameters_of, quantized_type
from mlhood.errors import CompilerError

_FUNCTIONS: dict[str, type[Operator]] = {operator.__name__: operator for operator in elementwise.OPERATORS}


def as_function(operator: Operator) -> Activation | None:
    """Return an operator as the attribute of a lookup: its name and attributes; None if it can be none."""
    return (operator.name, *operator.attributes.values()) if operator.name in _FUNCTIONS else None


def function_of(function: Activation) -> Operator:
    """Return the operator that a lookup's attribute names.

    Raises:
        CompilerError: There is none.
    """
    name, *attributes = function or ("",)
    if name not in _FUNCTIONS:
        raise CompilerError("there is no table for this function", expected=", ".join(_FUNCTIONS), got=function)
    try:
        return _FUNCTIONS[str(name)](*attributes)
    except TypeError as error:
        raise CompilerError("these are not the function's attributes", got=function) from error


@dataclass(frozen=True)
class Lookup(IntegerArithmetic, Operator):
    """y = function(x), read from a table with one entry for each of the 256 values that x can have.

    The table is worked out when compiling, from the parameters of x and y; no range is assumed for x. Where a function
    gives no number, the entry is what stands for zero.

    Attributes:
        function: An elementwise operator as an `Activation` is written: ("Sigmoid",), ("Elu", 1.0, 1.0).
        quantization: The result's parameters.
    """

    function: Activation
    quantization: Quantization

    family = "other"
    macs = NO_PRODUCTS
    from_onnx = MADE_BY_PASS

    def infer(self, x: TensorType) -> TensorType:
        is_whole(x)
        need(x.dtype.itemsize == 1, "a table needs integers of 8 bits", expected="int8 or uint8", got=x.element)
        function_of(self.function)
        return quantized_type(x.element, x.shape, self.quantization)

    def table(self, x: TensorType) -> np.ndarray:
        """Return the table for an input of this type: 256 integers, the first for the least value of x."""
        return _table(self.function, x.element, parameters_of(x), self.quantization)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        """Reference semantics; what the integers stand for is in the type."""
        return self.table(types[0])[x.astype(np.int64) - np.iinfo(x.dtype).min]

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
