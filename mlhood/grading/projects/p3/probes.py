"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isfunction
from itertools import cycle
from typing import Any

import numpy as np

from mlhood.grading.checks.probes import globals_of
from mlhood.grading.rpc.guard import guarded


def with_columns(
    function: Callable, arrays: list[np.ndarray], stride: int, padding: int, matrices: list[np.ndarray]
) -> dict[str, Any]:
    """Call a convolution with the notebook's `im2col` replaced by a function that returns one of these after the other.

    Args:
        function: The convolution.
        arrays: x, w and bias.
        stride: Of the convolution.
        padding: Of the convolution.
        matrices: What `im2col` returns: one for each image.

    Returns:
        Its `result`, and as `broken` what `rpc.guard` says of the call.
    """
    waiting = cycle(matrices)
    with replaced(function, im2col=lambda *_, **__: next(waiting)) as python:
        result, broken = guarded(python, [*arrays, stride, padding])
    return {"result": result, "broken": broken}


@contextmanager
def replaced(function: Callable, **replacements: Any) -> Iterator[Callable]:
    """Replace functions of the notebook by others, and yield the function as plain Python that sees them.

    What Numba has compiled sees no replacement, so that all compiled functions of the notebook are replaced by their
    Python versions, too, and so are partial functions of those that are replaced. It sees through decorators, partial
    functions, methods and objects that can be called.
    """
    names = globals_of(function)
    compiled = {name: value for name, value in names.items() if isfunction(getattr(value, "py_func", None))}
    new = {name: value.py_func for name, value in compiled.items()} | replacements
    by_id = {id(names[name]): value for name, value in new.items() if name in names}
    for name, value in names.items():
        if isinstance(value, partial) and id(value.func) in by_id:
            new[name] = partial(by_id[id(value.func)], *value.args, **value.keywords)
    before = {name: names[name] for name in new if name in names}
    names.update(new)
    try:
        yield getattr(function, "py_func", function)
    finally:
        for name in replacements:
            names.pop(name, None)
        names.update(before)


def bound(convolve: Callable, w: np.ndarray, bias: np.ndarray, *steps: int) -> Callable:
    """Return a convolution of images with these weights and biases, stride and padding."""
    return lambda x: convolve(x, w, bias, *steps)


def choices(
    mixed: Callable, chosen: list[Any], cases: list[list[np.ndarray]], steps: list[int], results: list[np.ndarray]
) -> list[np.ndarray]:
    """Call what `mixed` makes of a convolution that returns the results of another, with several weights.

    Args:
        mixed: The notebook's function.
        chosen: The shapes of weights that it gets.
        cases: x, w and bias of each convolution.
        steps: Stride and padding.
        results: What the convolution returns for each case.

    Returns:
        The results of `mixed`.
    """
    given: list[np.ndarray] = []
    convolve = mixed(list(map(tuple, chosen)), lambda *_: given[-1])
    got = []
    for arrays, result in zip(cases, results, strict=True):
        given.append(result)
        got.append(np.array(convolve(*arrays, *steps)))
    return got


def compiled_model(path: str, chosen: list[list[int]], function: Callable) -> Callable:
    """Compile a model whose convolutions with weights of these shapes are computed by a function, not by `direct`.

    Returns:
        What returns the logits of an image.
    """
    from mlhood.compiler.compile import compile
    from mlhood.kernels import CONV2D

    shapes, others = set(map(tuple, chosen)), CONV2D["direct"]

    def convolve(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
        return (function if w.shape in shapes else others)(x, w, bias, stride, padding)

    model: Any = compile(path, target=convolve)
    return lambda image: model.run(image=image)["logits"]


def products(function: Callable, kept: Any, shifts: list[int], row: int, rows: int = 8) -> list[np.ndarray]:
    """Return some rows of the products of pairs of matrices, the first of each changed by `shifted`.

    They come as an array [shifts, rows, N] for each pair: messages of many small arrays take long to encode, and the
    time of the message counts as that of the products.

    Args:
        kept: The pairs, kept in an earlier call as a flat list.
        shifts: Each for one call with every pair, so that `function` never sees the same matrices twice.
        row: The first of the rows.
        rows: How many.
    """
    pairs = list(zip(kept.arrays[::2], kept.arrays[1::2], strict=True))
    parts = [[np.array(function(shifted(a, shift), b)[row : row + rows]) for a, b in pairs] for shift in shifts]
    return [np.stack(of_pair) for of_pair in zip(*parts, strict=True)]


def shifted(a: np.ndarray, shift: int) -> np.ndarray:
    """Return a matrix times itself, element by element, one of them shifted circularly by so many elements.

    A matrix that is only shifted has the rows of another one, for as many shifts as it has rows: of their products, one
    could be kept for all.
    """
    return np.roll(a, shift) * a


def with_panels(function: Callable, a: np.ndarray, b: np.ndarray, other: np.ndarray, *rest: Any) -> np.ndarray:
    """Return a matrix product with the notebook's `pack` replaced by one that packs another matrix."""
    with replaced(function, pack=lambda b, width: packed(other, width)) as python:
        return python(a, b, *rest)


def packed(b: np.ndarray, width: int) -> np.ndarray:
    """Return the columns of b in panels [ceil(N / width), K, width], with zeros behind the last one."""
    padded = np.pad(b, ((0, 0), (0, -b.shape[1] % width)))
    return np.ascontiguousarray(padded.reshape(len(b), -1, width).transpose(1, 0, 2))


def launched(kernel: Callable, blocks: list[int], threads: int, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Run a kernel of a product c = a b in the simulator of a GPU.

    Args:
        kernel: Of (a, b, c), whatever it calls them.
        blocks: Along x and y.
        threads: Of a block along x, and along y.
        a: The left matrix.
        b: The right matrix.

    Returns:
        The result `c`; as `asked` the requests, elements and sectors of each matrix by its name here, and those of
        `shared` memory; the number of bank `conflicts`; and the `problems`.
    """
    from mlhood.gpu.simulator import launch

    c = np.full((len(a), b.shape[1]), np.nan, np.float32)
    report = launch(kernel, tuple(blocks), (threads, threads), a, b, c)
    names = getattr(kernel, "fn", kernel).__code__.co_varnames[:3]
    parts = {key: report.of(name).accesses for key, name in zip("abc", names, strict=True)}
    parts["shared"] = report.of(shared=True).accesses
    asked = {
        key: [sum(getattr(each, count) for each in accesses) for count in ("requests", "lanes", "served")]
        for key, accesses in parts.items()
    }
    return {"c": c, "asked": asked, "conflicts": report.conflicts, "problems": list(report.problems)}
