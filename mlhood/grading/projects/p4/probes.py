"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from itertools import product
from typing import Any
from unittest import mock

import numpy as np

from mlhood.dataflow.nest import Nest, gemm
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, possible
from mlhood.grading.checks.probes import patched_globals
from mlhood.grading.rpc.guard import call_guarded, guarded
from mlhood.kernels.geometry import geometry

VALUE_ERROR = "ValueError"


def scheduled(function: Callable, m: int, n: int, k: int) -> dict[str, Any]:
    """Schedule the nest of a matrix product; return loop extents and visits."""
    nest = function(gemm(m, n, k))
    if type(nest) is not Nest:  # a subclass could list any visits
        raise TypeError(f"`schedule` does not return a nest, but {nest!r}"[:200])
    return {"extents": list(nest.extents.values()), "visits": list(map(tuple, nest.visits().tolist()))}


def with_steps(
    function: Callable, times: np.ndarray, places: list[int], asked: list[list[Any]], *args: Any
) -> dict[str, Any]:
    """Call `sliced_product` with `steps` replaced by a function that names all steps backwards, each several times.

    Args:
        function: The student's.
        times: How often, by input and weight tile.
        places: The places of the slice, the input tile and the weight tile in a step.
        asked: Lists of arguments that `steps` is called with; any, if there are none.
        args: Of `sliced_product`.

    Returns:
        Its `result`, and `broken` of the guard.
    """

    def steps(order: str, inputs: int, weights: int, slices: int, k2: int, k3: int) -> list[tuple[int, ...]]:
        arguments = [order, inputs, weights, slices, k2, k3]
        if asked and arguments not in asked:
            raise ValueError(f"`steps` is called with {arguments}, and not with {asked[0]}")
        tiles = product(range(slices), range(inputs), range(weights))
        named = [[tile[place] for place in places] for tile in tiles for _ in range(int(times[tile[1:]]))]
        return [tuple(step) for step in named[::-1]]

    with patched_globals(function, steps=steps):
        result, broken = guarded(function, args)
    return {"result": result, "broken": broken}


def largest_or_error(function: Callable, *args: Any) -> Any:
    """Call `largest` and return its result, or VALUE_ERROR if it raises that."""
    try:
        return call_guarded(function, *args)
    except ValueError:
        return VALUE_ERROR


def sliced_convolution(w: np.ndarray, bias: np.ndarray, size: int, order: Order, tiles: list[int]) -> Callable:
    """Return a sliced 3x3 convolution with padding 1 of an image of this height and width, for caches of any size.

    Tiles beyond the existing ones are dropped, as in the notebook.
    """
    from mlhood.dataflow.sliced.sliced import Sliced, sliced_problem

    g = geometry((1, w.shape[1], size, size), w.shape, 1, 1)
    unsliced = Sliced(g, w, bias, caches=Caches((None, None, None)))
    return unsliced.sliced_as(possible(sliced_problem(g), order, tiles))


def triples_of(
    function: Callable, form: str, analysed: Any, problem: dict[str, Any], caches: dict[str, Any]
) -> list[Any]:
    """Call `triples` for a problem and caches given as plain data: return pairs of a row and its triples by order.

    Args:
        function: The student's.
        form: The keys of what it returns: "row", "order", or pairs: "row and order".
        analysed: An argument of it.
        problem: Another one.
        caches: Another one.
    """
    result = call_guarded(function, analysed, Problem(**problem), Caches(**caches))
    if form == "row":
        return [[row, by_order] for row, by_order in result.items()]
    rows: dict[str, dict[str, Any]] = {}
    if form == "order":
        result = {(row, order): tiles for order, by_row in result.items() for row, tiles in by_row.items()}
    for (row, order), tiles in result.items():
        rows.setdefault(row, {})[order] = tiles
    return [list(pair) for pair in rows.items()]


def chosen(function: Callable, problem: dict[str, Any], caches: dict[str, Any], *order: str) -> Any:
    """Call `choose` for a problem and caches given as plain data, and the order if it takes one."""
    return function(Problem(**problem), Caches(**caches), *order)


def convolved(
    function: Callable,
    order: Order,
    tiles: list[int],
    layers: list[dict[str, Any]],
    rounds: int,
    codes: dict[str, float],
    factors: list[float],
    *asked: Any,
) -> dict[str, Any]:
    """Make convolutions by `sliced_kernel`, and run each on layers as a compiled network does, several times.

    Another one, of other slices, has run on the same layers before: what it keeps is its own.

    Args:
        function: The student's.
        order: An argument of it.
        tiles: k1, k2 and k3, another argument of it.
        layers: `images`, one for each round, `w`, `bias`, `stride` and `padding` of each layer.
        rounds: How often the network is run.
        codes: Of both orders, and of one more of each tile: a slicing has the sum of its codes.
        factors: Those of the weights that are packed, one after another.
        asked: Its further arguments.

    Returns:
        Lists of results for each round, with an array for each layer: of the `plain` package, of one in which the
        result of a sliced convolution is times the code of its slicing (`sliced`), and of one in which packed weights
        are times their factors (`packed`); and `broken` of the guard.
    """
    from mlhood.dataflow.sliced import sliced
    from mlhood.kernels import direct

    call, pack, left = sliced.Sliced.__call__, direct.pack_weights, iter(factors)

    def coded(self: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        pairs = zip(("k1", "k2", "k3"), self.slicing.tiles, strict=True)
        code = codes[self.slicing.order] + sum(codes[name] * size for name, size in pairs)
        return call(self, *args, **kwargs) * np.float32(code)

    def scaled(*args: Any, **kwargs: Any) -> np.ndarray:
        weights = pack(*args, **kwargs)
        weights *= np.float32(next(left))
        return weights

    replaced: dict[str, list[Any]] = {
        "plain": [],
        "sliced": [mock.patch.object(sliced.Sliced, "__call__", coded)],
        "packed": [mock.patch.object(module, "pack_weights", scaled) for module in (sliced, direct)],
    }
    report: dict[str, Any] = {"broken": ""}

    def run(convolve: Callable, layer: dict[str, Any], image: np.ndarray) -> np.ndarray:
        result, broken = guarded(convolve, (image, layer["w"], layer["bias"], layer["stride"], layer["padding"]))
        report["broken"] = report["broken"] or broken
        return copy(result)  # the next call may overwrite it

    for name, patches in replaced.items():
        convolve = function(order, tuple(tiles), *asked)
        other = function(next(each for each in ORDERS if each != order), (1, 1, 1), *asked)
        for layer in layers:
            layer["w"].flags.writeable = layer["bias"].flags.writeable = False
            other(layer["images"][0], layer["w"], layer["bias"], layer["stride"], layer["padding"])
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            report[name] = [[run(convolve, layer, layer["images"][i]) for layer in layers] for i in range(rounds)]
    return report


def resized(function: Callable, order: Order, tiles: list[int], layer: dict[str, Any], *asked: Any) -> list[Any]:
    """Make a convolution by `sliced_kernel`, and run it on the images of a layer, which differ in size.

    Args:
        function: The student's.
        order: An argument of it.
        tiles: Another argument of it.
        layer: As in `convolved`.
        asked: Further arguments of the function.
    """
    convolve = function(order, tuple(tiles), *asked)
    return [convolve(image, layer["w"], layer["bias"], layer["stride"], layer["padding"]) for image in layer["images"]]


def network(
    function: Callable, order: Order, tiles: list[int], weights: list[np.ndarray], strides: list[int], *asked: Any
) -> Callable:
    """Return a chain of convolutions of an image by `sliced_kernel`.

    Each has padding 1 and no bias, and is followed by a ReLU.

    Args:
        function: The student's `sliced_kernel`.
        order: An argument of it.
        tiles: Another argument of it.
        weights: float32 [F, C, 3, 3] of each layer.
        strides: Of each layer.
        asked: Further arguments of the function.
    """
    convolve, biases = function(order, tuple(tiles), *asked), [np.zeros(len(w), np.float32) for w in weights]

    def run(x: np.ndarray) -> np.ndarray:
        for w, bias, stride in zip(weights, biases, strides, strict=True):
            x = np.ascontiguousarray(np.maximum(convolve(x, w, bias, stride, 1), 0))
        return x

    return run
