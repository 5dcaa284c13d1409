"""Arithmetic on lengths while a model is imported: batch * 4, batch // 2, and what exporters test them for.

Exporters compute shapes in the graph. Where the lengths are numbers, NumPy evaluates the operators; where a name of a
dynamic axis is among them, the functions below do, on numbers and expressions. What has no normal form becomes an
expression all the same: the operator itself is applied when the lengths are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import (
    OPEN_END,
    Dim,
    Length,
    add_dims,
    divide_dim,
    is_at_least,
    maximum,
    minimum,
    multiply_dims,
    product,
    remainder,
    subtract_dims,
)
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.arithmetic import Mod, Where
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.cast import Cast


def evaluate_names(
    operator: Operator, types: Sequence[TensorType], arrays: Sequence[np.ndarray], result: TensorType
) -> np.ndarray | None:
    """Return an operator's result on arrays of which at least one has names of axes or expressions as elements.

    Args:
        operator: The operator.
        types: The types of its inputs.
        arrays: Its inputs, of dtype object where there are names.
        result: The type of the result.

    Returns:
        The result, of dtype object; None if the operator is neither elementwise nor a reduction of a list.
    """
    are_integers = all(type.dtype.kind in "iu" for type in (*types, result))
    if operator.name in _REDUCTIONS and are_integers and np.ndim(arrays[0]) == 1:
        reduced = reduce(_REDUCTIONS[operator.name], arrays[0].tolist())
        return np.array(reduced, object).reshape([1] * result.rank)  # `np.full` would make plain text of it
    if not isinstance(operator, Elementwise | Cast):
        return None
    function: Callable[..., Any] = _Applied(operator, tuple(type.element for type in types))
    if isinstance(operator, Cast) and are_integers:
        return arrays[0]
    if isinstance(operator, Where):
        function = _where(function)
    elif all(type.dtype.kind in "iu" for type in types) and not (isinstance(operator, Mod) and operator.truncated):
        function = _first_known(_FUNCTIONS.get(operator.name, function), function)
    if len(arrays) > 2 and not isinstance(operator, Where):  # Max and Min of several
        return reduce(np.frompyfunc(function, 2, 1), arrays)
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


@dataclass(frozen=True)
class _Applied:
    """An elementwise operator as a function of numbers and expressions.

    Args:
        operator: The operator.
        elements: The element types of its inputs.
    """

    operator: Operator
    elements: tuple[str, ...]

    def __call__(self, *values: Any) -> Any:
        if any(isinstance(value, str) for value in values):
            parameters = self.operator.non_default_attributes.values()
            text = f"{self.operator.name}({', '.join(map(str, (*values, *parameters)))})"
            return Length(text, self, *values)
        arrays = [np.array(value, element) for value, element in zip(values, self.elements, strict=True)]
        return self.operator.evaluate(*arrays).item()


def _first_known(function: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def apply(*values: Any) -> Any:
        result = function(*values)
        return otherwise(*values) if result is None else result

    return apply


def _where(otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def apply(condition: Any, a: Any, b: Any) -> Any:
        if not isinstance(condition, str):
            return a if condition else b
        return a if a == b else otherwise(condition, a, b)

    return apply


def _divide(a: Dim, b: Dim) -> Dim | None:
    """Return a quotient, rounded towards zero; None if it is not known whether that is down."""
    if isinstance(b, str) or b > 0:
        if is_at_least(a, 0):
            return divide_dim(a, b)
        if is_at_least(product((-1, a)), 0):
            return product((-1, divide_dim(product((-1, a)), b)))
    return None


def _equal(a: Dim, b: Dim) -> bool | None:
    difference = subtract_dims(a, b)
    if isinstance(difference, int):
        return difference == 0
    return False if is_at_least(difference, 1) or is_at_least(product((-1, difference)), 1) else None


def _less(a: Dim, b: Dim) -> bool | None:
    if is_at_least(subtract_dims(b, a), 1):
        return True
    return False if is_at_least(subtract_dims(a, b), 0) else None


def _minimum(a: Dim, b: Dim) -> Dim:
    """Return the smaller of two lengths; no axis is as long as the numbers by which exporters express no limit."""
    number, other = (a, b) if isinstance(a, int) else (b, a)
    return other if isinstance(number, int) and number >= OPEN_END and isinstance(other, str) else minimum(a, b)


def _negated(function: Callable[[Dim, Dim], bool | None]) -> Callable[[Dim, Dim], bool | None]:
    def apply(a: Dim, b: Dim) -> bool | None:
        result = function(b, a)
        return None if result is None else not result

    return apply


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": add_dims,
    "Sub": subtract_dims,
    "Mul": multiply_dims,
    "Div": _divide,
    "Mod": remainder,
    "Neg": lambda a: product((-1, a)),
    "Min": _minimum,
    "Max": maximum,
    "Equal": _equal,
    "Less": _less,
    "Greater": lambda a, b: _less(b, a),
    "LessOrEqual": _negated(_less),
    "GreaterOrEqual": _negated(lambda a, b: _less(b, a)),
}
_REDUCTIONS = {"ReduceProd": multiply_dims, "ReduceSum": add_dims, "ReduceMax": maximum, "ReduceMin": minimum}
