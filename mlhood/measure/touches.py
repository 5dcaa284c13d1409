"""In which order a product reads its matrices: its function run as it is written, on arrays that remember."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from mlhood.measure.traffic import Trace, Traced


def touched(function: Callable, a: np.ndarray, b: np.ndarray, *rest: int) -> dict[str, Any]:
    """Run a matrix product on arrays that remember in which order they are touched.

    The result that the function makes remembers, too, unless something is done with it that only NumPy's own can do.

    Returns:
        The `addresses`, those of b from `first` up to `last`, and whether a or b was read as a `whole`.
    """
    try:
        return _touched(function, a, b, rest, own=True)
    except NotImplementedError:
        raise
    except Exception:  # whatever an array cannot do that is none of NumPy's
        return _touched(function, a, b, rest, own=False)


def _touched(function: Callable, a: np.ndarray, b: np.ndarray, rest: tuple[int, ...], *, own: bool) -> dict[str, Any]:
    trace = Trace()
    traced = [trace.array(array, name) for array, name in ((a, "a"), (b, "b"))]
    as_written(function, _Numpy(trace, (len(a), b.shape[1]) if own else None))(*traced, *rest)
    first, last = (int(traced[1].places[place]) for place in ((0, 0), (-1, -1)))
    whole = sorted(trace.whole & {"a", "b"})
    return {"addresses": trace.addresses(), "first": first, "last": last, "whole": whole}


def as_written(function: Callable, numpy: Any, **instead: Callable) -> Callable:
    """Return a function of a notebook as it is written: what Numba has compiled takes no arrays that remember.

    Functions of the notebook that it calls are also taken as they are written, so all of them are given a copy of the
    notebook's names.

    Args:
        function: Compiled or not.
        numpy: What stands in the place of NumPy.
        instead: Functions that are put in the place of the notebook's.
    """
    found = written(function)
    if found is None:
        return function
    names = dict(found.__globals__)
    for name, value in found.__globals__.items():
        inner = written(value)
        if inner is not None and inner.__globals__ is found.__globals__:
            names[name] = _moved(inner, names)
        elif value is np:
            names[name] = numpy
    names.update(instead)
    return _moved(found, names)


def written(value: Any) -> FunctionType | None:
    """Return a function as it is written, also of a compiled one; None of what is no function of Python."""
    inner = getattr(value, "py_func", value) if callable(value) else None
    return inner if isinstance(inner, FunctionType) else None


def _moved(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    moved = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    moved.__kwdefaults__ = function.__kwdefaults__
    return moved


class _Numpy:
    """NumPy, but arrays that remember stay so when they are converted, and one of the result's shape is made to.

    Others that are made are small and short-lived, and lie wherever the last ones did.
    """

    MAKERS = ("zeros", "empty", "full", "ones", "zeros_like", "empty_like", "full_like", "ones_like")
    CONVERTERS = ("asarray", "ascontiguousarray", "array")

    def __init__(self, trace: Trace, result: tuple[int, int] | None) -> None:
        self._trace = trace
        self._result = result

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in self.MAKERS:
            return partial(self._make, found)
        return partial(_converted, found) if name in self.CONVERTERS else found

    def _make(self, make: Callable, first: Any, *rest: Any, **options: Any) -> Any:
        made = make(first.array if isinstance(first, Traced) else first, *rest, **options)
        return self._trace.array(made, "result") if made.shape == self._result else made


def _converted(convert: Callable, array: Any, dtype: Any = None, **options: Any) -> Any:
    if isinstance(array, Traced):
        return array.astype(array.dtype if dtype is None else dtype)
    return convert(array, dtype=dtype, **options)
