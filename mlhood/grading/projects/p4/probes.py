"""Questions that need the student's functions, asked in their process; the answers are claims, which checks compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np

from mlhood.dataflow.nest import Nest, gemm
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import Order, Problem, possible
from mlhood.grading.projects.p4 import reference
from mlhood.kernels.geometry import geometry

REFUSED = "ValueError"
RIGHT = {"steps": reference.steps, "needs": reference.needs}


def listed(function: Callable, *args: Any) -> np.ndarray:
    """What a function returns or yields, as rows of numbers."""
    return np.array([tuple(point) for point in function(*args)])


def scheduled(function: Callable, m: int, n: int, k: int) -> dict[str, Any] | None:
    """What a function makes of the nest of a matrix product: loops' extents, and visits; None if that is no nest."""
    found = function(gemm(m, n, k))
    if not isinstance(found, Nest):
        return None
    return {"extents": list(found.extents.values()), "visits": found.visits()}


def with_right(function: Callable, name: str, *args: Any) -> Any:
    """What a function returns that finds a right `name` where the notebook has its own."""
    names = getattr(function, "__globals__", {})
    own = {name: names[name]} if name in names else {}
    names[name] = RIGHT[name]
    try:
        return function(*args)
    finally:
        names.pop(name)
        names.update(own)


def asked(function: Callable, name: str, *args: Any) -> dict[str, Any]:
    """With which values a function calls `name`, the notebook's own or else a right one.

    The function may fail after that: what comes of the call is not the question here. Where its names cannot be looked
    into, there is no answer, and `seen` is false.
    """
    names = getattr(function, "__globals__", None)
    if names is None:
        return {"seen": False, "calls": []}
    own, here, calls = names.get(name, RIGHT[name]), name in names, []

    def kept(*args: Any, **named: Any) -> Any:
        calls.append([value if isinstance(value, str) else float(value) for value in _bound(own, args, named)])
        return own(*args, **named)

    names[name] = kept
    try:
        with suppress(Exception):
            function(*args)
    finally:
        names.pop(name)
        names.update({name: own} if here else {})
    return {"seen": True, "calls": calls[:100]}


def _bound(function: Callable, args: tuple, named: dict[str, Any]) -> tuple:
    """The values of a call in the order of the function's head."""
    return signature(function).bind(*args, **named).args


def refused(function: Callable, name: str | None, *args: Any) -> Any:
    """Whether a function raises ValueError; else what it returns. With a right `name`, if one is given."""
    try:
        return with_right(function, name, *args) if name else function(*args)
    except ValueError:
        return REFUSED


def sliced(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, factors: np.ndarray, order: Order, tiles: list[int]
) -> np.ndarray:
    """The sum of convolutions of x times each factor, 3x3 with a frame of zeros, in slices, whatever the caches.

    One image that is used many times takes less time on the way than many images. Tiles that are not there are left
    out, as the notebook does it.
    """
    from mlhood.dataflow.sliced.sliced import Sliced, sliced_problem

    g = geometry(x.shape, w.shape, 1, 1)
    whole = Sliced(g, w, bias, caches=Caches((None, None, None)))
    one = whole.sliced_as(possible(sliced_problem(g), order, tiles))
    total = np.zeros(g.out_shape, np.float32)
    for factor in factors:
        total += one(x * factor)
    return total


def triples_of(function: Callable, analysed: Any, problem: dict[str, Any], caches: dict[str, Any]) -> Any:
    """What a function says of a problem and of caches that are told in plain data."""
    return function(analysed, Problem(**problem), Caches(**caches))
