"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np

from mlhood.dataflow.nest import Nest, gemm
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import Order, Problem, possible
from mlhood.grading.checks.probes import patched_globals
from mlhood.grading.projects.p4.reference import needs, steps
from mlhood.kernels.geometry import geometry

VALUE_ERROR = "ValueError"
REFERENCES = {"steps": steps, "needs": needs}


def listed(function: Callable, *args: Any) -> np.ndarray:
    """Return what a function returns or yields as an array, one row per item."""
    return np.array([tuple(point) for point in function(*args)])


def scheduled(function: Callable, m: int, n: int, k: int) -> dict[str, Any] | None:
    """Schedule the nest of a matrix product; return loop extents and visits, or None if the result is not a nest."""
    nest = function(gemm(m, n, k))
    if type(nest) is not Nest:  # a subclass could list any visits
        return None
    return {"extents": list(nest.extents.values()), "visits": nest.visits()}


def with_reference(function: Callable, name: str, *args: Any) -> Any:
    """Call a function with the notebook's `name` replaced by the reference's."""
    with patched_globals(function, **{name: REFERENCES[name]}):
        return function(*args)


def with_a_tile_twice(function: Callable, tile: int, *args: Any) -> Any:
    """Call `sliced_product` with the reference's `steps`, those of one input tile twice in a row."""

    def steps(*sizes: Any, **named: Any) -> list[tuple[int, ...]]:
        right = [tuple(step) for step in REFERENCES["steps"](*sizes, **named)]
        return [step for step in right for _ in range(2 if step[1] == tile else 1)]

    with patched_globals(function, steps=steps):
        return function(*args)


def recorded_calls(function: Callable, name: str, *args: Any) -> dict[str, Any]:
    """Record the arguments with which a function calls `name`, the notebook's own or else the reference's.

    Exceptions of the function are ignored: its result is the subject of another check. For a callable whose global
    names cannot be replaced, `recorded` is false.
    """
    names = getattr(function, "__globals__", None)
    if names is None:
        return {"recorded": False, "calls": []}
    original, calls = names.get(name, REFERENCES[name]), []

    def recording(*args: Any, **kwargs: Any) -> Any:
        values = signature(original).bind(*args, **kwargs).args
        calls.append([value if isinstance(value, str) else float(value) for value in values])
        return original(*args, **kwargs)

    with patched_globals(function, **{name: recording}), suppress(Exception):
        function(*args)
    return {"recorded": True, "calls": calls[:100]}


def result_or_value_error(function: Callable, name: str | None, *args: Any) -> Any:
    """Call a function, with the reference's `name` if one is given; return VALUE_ERROR if it raises ValueError."""
    try:
        return with_reference(function, name, *args) if name else function(*args)
    except ValueError:
        return VALUE_ERROR


class PlacedConvolution:
    """A sliced 3x3 convolution of an image, with padding 1, for caches of any size.

    Tiles beyond the existing ones are dropped, as in the notebook.
    """

    def __init__(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray, order: Order, tiles: list[int]) -> None:
        from mlhood.dataflow.sliced.sliced import Sliced, sliced_problem

        g = geometry(x.shape, w.shape, 1, 1)
        unsliced = Sliced(g, w, bias, caches=Caches((None, None, None)))
        self.x = x
        self.run = unsliced.sliced_as(possible(sliced_problem(g), order, tiles))


def place(x: np.ndarray, w: np.ndarray, bias: np.ndarray, order: Order, tiles: list[int]) -> PlacedConvolution:
    """Compile a sliced convolution and keep it, so that neither this nor the way of its arguments is timed."""
    return PlacedConvolution(x, w, bias, order, tiles)


def sliced(placed: PlacedConvolution, factors: list[float], channels: list[int]) -> np.ndarray:
    """Return the sum of the convolutions of its image times each factor, some channels of it."""
    total = np.float32(0)
    for factor in factors:
        total = total + placed.run(placed.x * np.float32(factor))[:, channels]
    return np.asarray(total)


def triples_of(function: Callable, analysed: Any, problem: dict[str, Any], caches: dict[str, Any]) -> Any:
    """Call `triples` for a problem and caches given as plain data."""
    return function(analysed, Problem(**problem), Caches(**caches))
