"""The bytes that NumPy moves: what its loops over arrays read and write, counted as XLA's cost analysis counts its own.

>>> bytes_moved(lambda x: x * 2 + 1, np.zeros(100, np.float32))
1600
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


class _Counted(np.ndarray):
    """An array that counts what NumPy's loops read and write, as do all arrays that are computed from it."""

    moved = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        options |= {"out": tuple(_plain(options["out"]))} if "out" in options else {}
        return _count(getattr(ufunc, method)(*_plain(inputs), **options), inputs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _count(function(*_plain(args), **kwargs), args, views=True)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return _count(np.asarray(self).reshape(*shape, **options), (self,), views=True)


def _plain(values: Iterable[Any]) -> list[Any]:
    return [np.asarray(value) if isinstance(value, _Counted) else value for value in values]


def _count(result: Any, operands: tuple[Any, ...], *, views: bool = False) -> Any:
    """Add the bytes of a loop, unless its result is a view of an operand; return the result, which counts, too."""
    arrays = [value for value in _plain(operands) if isinstance(value, np.ndarray)]
    if not (views and any(np.may_share_memory(result, array) for array in arrays)):
        _Counted.moved += result.nbytes + sum(array.nbytes for array in arrays)
    return result.view(_Counted) if isinstance(result, np.ndarray) else result


def bytes_moved(function: Callable[..., Any], *arguments: np.ndarray) -> int:
    """Return how many bytes the loops of a function of NumPy arrays read and write, as if there were no cache.

    Elementwise operations, reductions, products, and the copies of `np.pad` and `reshape` are counted; views are free.
    """
    _Counted.moved = 0
    function(*(argument.view(_Counted) for argument in arguments))
    return _Counted.moved
