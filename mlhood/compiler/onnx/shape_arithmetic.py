"""Arithmetic on lengths while a model is imported: batch * 4, batch // 2, and what exporters test them for.

Exporters compute shapes in the graph. Where the lengths are numbers, NumPy evaluates the operators; where a name of an
open axis is among them, the functions below do, as far as the result is a length that a type can hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.compiler.hir.lengths import floor_divide, subtract_dims
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Dim, add_dims, product

Element = Dim | bool


class _UnknownError(Exception):
    """The result depends on the length that an open axis will have."""


def evaluate_names(operator: Operator, arrays: list[np.ndarray]) -> np.ndarray | None:
    """Return an operator's result on arrays of which at least one holds names of axes.

    Args:
        operator: The operator.
        arrays: Its inputs, of dtype object where there are names.

    Returns:
        The result, of dtype object; None if it depends on the lengths that the names stand for.
    """
    try:
        if operator.name == "Where":
            return _where(*arrays)
        if operator.name == "ReduceProd" and np.asarray(arrays[0]).ndim == 1:
            result = np.array(product(arrays[0].tolist()), object)
            return result.reshape(1) if getattr(operator, "keepdims", False) else result
        if operator.name in ("Cast", "Identity"):
            return arrays[0]
        function = _FUNCTIONS.get(operator.name)
        if function is None:
            return None
        result = arrays[0]
        for other in arrays[1:]:
            result = np.asarray(np.frompyfunc(function, 2, 1)(result, other), object)
        return result
    except _UnknownError:
        return None


def _where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    if condition.dtype == object:
        return None
    return np.where(condition.astype(bool), x.astype(object), y.astype(object))


def _known(result: Dim | None) -> Dim:
    if result is None:
        raise _UnknownError
    return result


def _plain(element: Any) -> Dim:
    """Return a Python number, or a name: the type rules' functions expect one."""
    if not isinstance(element, str) and element != int(element):
        raise _UnknownError
    return element if isinstance(element, str) else int(element)


def _minimum(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    number, name = (a, b) if isinstance(a, int) else (b, a)
    if isinstance(number, int):  # a length is at least 0, and never longer than an axis can be
        if number <= 0:
            return number
        if number >= 2**31 - 1:
            return name
    raise _UnknownError


def _maximum(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    number, name = (a, b) if isinstance(a, int) else (b, a)
    if isinstance(number, int) and number <= 0:
        return name
    return f"max({a}, {b})"


def _modulo(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    quotient = _known(floor_divide(a, b))
    return _known(subtract_dims(a, product((quotient, b))))


def _equal(a: Dim, b: Dim) -> bool:
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    number = a if isinstance(a, int) else b
    if isinstance(number, int) and number < 0:  # exporters test for -1
        return False
    raise _UnknownError


def _less(a: Dim, b: Dim) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if a == b or (isinstance(b, int) and b <= 0):
        return False
    if isinstance(a, int) and a < 0:
        return True
    raise _UnknownError


def _lift(function: Callable[[Dim, Dim], Element | None]) -> Callable[[Any, Any], Element]:
    def apply(a: Any, b: Any) -> Element:
        result = function(_plain(a), _plain(b))
        if result is None:
            raise _UnknownError
        return result

    return apply


_FUNCTIONS = {
    "Add": _lift(add_dims),
    "Sub": _lift(subtract_dims),
    "Mul": _lift(lambda a, b: product((a, b))),
    "Div": _lift(floor_divide),
    "Mod": _lift(_modulo),
    "Min": _lift(_minimum),
    "Minimum": _lift(_minimum),
    "Max": _lift(_maximum),
    "Maximum": _lift(_maximum),
    "Equal": _lift(_equal),
    "Less": _lift(_less),
    "Greater": _lift(lambda a, b: _less(b, a)),
    "LessOrEqual": _lift(lambda a, b: not _less(b, a)),
    "GreaterOrEqual": _lift(lambda a, b: not _less(a, b)),
}
