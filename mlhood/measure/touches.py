"""The access order of a matrix product: its Python function run on arrays that trace their accesses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from mlhood.measure.traffic import Trace, TracedArray


def touched(function: Callable, a: np.ndarray, b: np.ndarray, *rest: int) -> dict[str, Any]:
    """Run a matrix product on traced arrays, and return the trace.

    The result that the function allocates is traced too, unless an operation on it works on real arrays only.

    Returns:
        The `addresses` in order of access, those of b from `first` to `last`, and the names of the operands that NumPy
        read as a `whole`.
    """
    try:
        return _trace(function, a, b, rest, trace_result=True)
    except NotImplementedError:
        raise
    except Exception:  # whatever a traced array does not support
        return _trace(function, a, b, rest, trace_result=False)


def _trace(
    function: Callable, a: np.ndarray, b: np.ndarray, rest: tuple[int, ...], *, trace_result: bool
) -> dict[str, Any]:
    trace = Trace()
    traced = [trace.array(array, name) for array, name in ((a, "a"), (b, "b"))]
    numpy = _TracingNumpy(trace, (len(a), b.shape[1]) if trace_result else None)
    # P3's: where its array begins in a cache line does not matter here
    replacements = {"aligned_zeros": lambda rows, columns: numpy.zeros((rows, columns), np.float32)}
    uncompiled(function, numpy, **replacements)(*traced, *rest)
    first, last = trace.ranges["b"]
    return {"addresses": trace.addresses(), "first": first, "last": last, "whole": sorted(trace.whole & {"a", "b"})}


def uncompiled(function: Callable, numpy: Any, **replacements: Callable) -> Callable:
    """Return the Python version of a notebook's function: what Numba has compiled does not accept traced arrays.

    Functions of the notebook that it calls are replaced by their Python versions too, so all of them get a copy of the
    notebook's globals.

    Args:
        function: Compiled or not.
        numpy: Replacement of NumPy.
        replacements: Functions that replace the notebook's of the same name.
    """
    source = python_function(function)
    if source is None:
        return function
    names = dict(source.__globals__)
    for name, value in source.__globals__.items():
        callee = python_function(value)
        if callee is not None and callee.__globals__ is source.__globals__:
            names[name] = _with_globals(callee, names)
        elif value is np:
            names[name] = numpy
    names.update(replacements)
    return _with_globals(source, names)


def python_function(value: Any) -> FunctionType | None:
    """Return a Python function, or the one that Numba has compiled; None for anything else."""
    function = getattr(value, "py_func", value) if callable(value) else None
    return function if isinstance(function, FunctionType) else None


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


class _TracingNumpy:
    """NumPy, except that conversions of traced arrays stay traced, and a new array of the result's shape is traced.

    Other new arrays are temporaries, which reuse the memory of earlier ones.
    """

    CREATORS = ("zeros", "empty", "full", "ones", "zeros_like", "empty_like", "full_like", "ones_like")
    CONVERTERS = ("asarray", "ascontiguousarray", "array")

    def __init__(self, trace: Trace, result_shape: tuple[int, int] | None) -> None:
        self._trace = trace
        self._result_shape = result_shape

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(np, name)
        if name in self.CREATORS:
            return partial(self._create, attribute)
        return partial(_convert, attribute) if name in self.CONVERTERS else attribute

    def _create(self, create: Callable, first: Any, *rest: Any, **options: Any) -> Any:
        like = np.broadcast_to(np.zeros((), first.dtype), first.shape) if isinstance(first, TracedArray) else first
        array = create(like, *rest, **options)
        return self._trace.array(array, "result") if array.shape == self._result_shape else array


def _convert(convert: Callable, array: Any, dtype: Any = None, **options: Any) -> Any:
    if isinstance(array, TracedArray):
        return array.astype(array.dtype if dtype is None else dtype)
    return convert(array, dtype=dtype, **options)
