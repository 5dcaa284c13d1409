"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import isfunction
from types import CellType, CodeType
from typing import Any

import numpy as np

from mlhood.grading.checks.probes import globals_of, unwrapped
from mlhood.grading.projects.p3.reference import ROWS, STEPS, Steps, columns, convolution
from mlhood.grading.rpc.guard import call_guarded, guarded

PANEL_PADDINGS = (
    "behind",
    "before",
    "copies",
)  # what fills panels up: zeros behind b, zeros before it, its last column
PRODUCTS = ("matmul", "dot", "multi_dot")  # of NumPy and torch; the last is one product if it gets two matrices


class Columns(np.ndarray):
    """A matrix that counts the products that it, a part or a copy of it takes part in."""

    products: list[str]

    def __array_finalize__(self, other: Any) -> None:
        self.products = getattr(other, "products", [])

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        if ufunc is np.matmul:
            self.products.append(ufunc.__name__)
        plain = tuple(map(_plain, inputs))
        results = {} if out is None else {"out": tuple(map(_plain, out))}
        result = getattr(ufunc, method)(*plain, **results, **options)
        return _counting(result, self.products) if ufunc is not np.matmul else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.dot, np.linalg.multi_dot):
            self.products.append(function.__name__)
            return function(*_plain(args), **_plain(kwargs))
        return _counting(super().__array_function__(function, types, args, kwargs), self.products)

    def dot(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Count the product, as NumPy's method calls no function that could."""
        self.products.append("dot")
        return _plain(self).dot(*_plain(args), **kwargs)


def _plain(value: Any) -> Any:
    """Return a value, in which matrices that count are ordinary arrays."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, Columns) else value


def _counting(value: Any, products: list[str]) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view(Columns)
        value.products = products
    return value


def with_reference_columns(
    function: Callable,
    arrays: list[np.ndarray],
    stride: int,
    padding: int,
    factor: float = 1.0,
    rows: str = ROWS[0],
    steps: str = STEPS[0],
) -> dict[str, Any]:
    """Call a convolution with the notebook's `im2col` replaced by the reference's, times a factor.

    Args:
        function: The convolution.
        arrays: x, w and bias.
        stride: Of the convolution.
        padding: Of the convolution.
        factor: Of the columns.
        rows: The order of the rows of `im2col`.
        steps: Which argument of `im2col` is a pair.

    Returns:
        Its `result`; the numbers of `images` passed to `im2col` and of `products` with the columns; whether its code
            `multiplies` at all, as a product with a copy that is made by `np.asarray` is not counted; and as `broken`
            what `rpc.guard` says of the call.
    """
    images, products = [], []
    in_code = multiplies(function)

    def im2col(x: np.ndarray, kernel: tuple[int, int], stride: Steps, padding: Steps) -> np.ndarray:
        images.append(x)
        matrix = columns(np.asarray(x, np.float32), kernel, stride, padding, rows, steps)
        return _counting(matrix * np.float32(factor), products)

    with replaced(function, im2col=im2col) as python:
        result, broken = guarded(python, [*arrays, stride, padding])
    counts = {"images": len(images), "products": len(products), "multiplies": in_code}
    return {"result": _plain(result), "broken": broken} | counts


def multiplies(function: Callable) -> bool:
    """Whether `@` or a function that does the same is in the code of a function, or of one that it may call."""
    names, waiting, seen = globals_of(function), [function], []
    while waiting:
        value = waiting.pop()
        if any(value is other for other in seen):
            continue
        seen.append(value)
        inner = value if isinstance(value, CodeType) else unwrapped(value)
        code = inner if isinstance(inner, CodeType) else getattr(inner, "__code__", None)
        called = {getattr(part, "__name__", "") for part in (value, getattr(value, "func", None))}
        if not called.isdisjoint(PRODUCTS) or (code and _has_product(code)):
            return True
        if code:
            waiting += [part for part in code.co_consts if isinstance(part, CodeType)]
            waiting += [names[name] for name in code.co_names if name in names]
        waiting += _held(value, names)
    return False


def _has_product(code: CodeType) -> bool:
    named = not set(PRODUCTS).isdisjoint(code.co_names)
    return named or any(step.argrepr in ("@", "@=") for step in dis.get_instructions(code))


def _held(value: Any, names: dict[str, Any]) -> list[Any]:
    """What a closure holds, or the methods of a class or an object of the notebook with these names."""
    kind = value if isinstance(value, type) else type(value)
    methods = [*vars(kind).values()] if kind.__module__ == names.get("__name__") else []
    cells = getattr(value, "__closure__", None) or ()
    return methods + [cell.cell_contents for cell in cells if cell != CellType()]  # an empty one has no contents


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


def repeated(
    function: Callable, kept: Any, shifts: list[int], shares: list[float], channels: list[int], steps: list[int]
) -> np.ndarray:
    """Return the weighted sum of convolutions of an image shifted circularly by so many elements, some channels of it.

    Args:
        kept: x, w and bias, kept in an earlier call.
        shifts: One for each call of `function`, which thus never sees the same image twice.
        shares: The weights.
        channels: Of the result.
        steps: Stride and padding.
    """
    x, w, bias = kept.arrays
    total = np.float32(0)
    for shift, share in zip(shifts, shares, strict=True):
        result = np.asarray(function(np.roll(x, shift), w, bias, *steps))
        if result.shape[:2] != (len(x), len(w)):
            return result
        total = total + np.float32(share) * result[:, channels]
    return np.asarray(total)


def choices(
    mixed: Callable, chosen: list[list[int]] | list[int], cases: list[list[np.ndarray]], steps: list[int]
) -> dict[str, Any]:
    """Call what `mixed` makes of a convolution that only marks its results, with several weights.

    Args:
        mixed: The notebook's function.
        chosen: The shapes of weights that it gets, or their sizes.
        cases: x, w and bias of each convolution.
        steps: Stride and padding.

    Returns:
        The `results`, how often the convolution was `called` for each case, and how often `direct` was.
    """
    called: list[int] = []
    called_direct: list[int] = []
    own_direct = globals_of(mixed).get("direct", convolution)

    def marked(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
        called[-1] += 1
        return convolution(x, w, bias, stride, padding).astype(np.float32) + np.float32(1000)

    def direct(*arguments: Any, **named: Any) -> np.ndarray:
        called_direct[-1] += 1
        return own_direct(*arguments, **named)

    results = []
    with replaced(mixed, direct=direct) as python:
        convolve = python([tuple(shape) if isinstance(shape, list) else shape for shape in chosen], marked)
        for x, w, bias in cases:
            called.append(0)
            called_direct.append(0)
            results.append(np.array(convolve(x, w, bias, *steps)))
    return {"results": results, "called": called, "direct": called_direct}


def compiled_model(path: str, chosen: list[list[int]], function: Callable) -> Any:
    """Compile a model whose convolutions with weights of these shapes are computed by a function, not by `direct`."""
    from mlhood.compiler.compile import compile
    from mlhood.kernels import CONV2D

    shapes, others = set(map(tuple, chosen)), CONV2D["direct"]

    def convolve(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
        return (function if w.shape in shapes else others)(x, w, bias, stride, padding)

    return compile(path, target=convolve)


def logits(model: Any, kept: Any, shifts: list[int]) -> np.ndarray:
    """Return a model's outputs for an image that is shifted circularly by so many elements, one row a call."""
    (image,) = kept.arrays
    return np.concatenate([model.run(image=np.roll(image, shift))["logits"] for shift in shifts])


def products(function: Callable, kept: Any, shifts: list[int], row: int, rows: int = 8) -> list[np.ndarray]:
    """Return some rows of the products of pairs of matrices, the first of each shifted circularly by so many elements.

    Args:
        kept: The pairs, kept in an earlier call as a flat list.
        shifts: Each for one call with every pair, so that `function` never sees the same matrices twice.
        row: The first of the rows.
        rows: How many.
    """
    pairs = list(zip(kept.arrays[::2], kept.arrays[1::2], strict=True))
    return [np.array(function(np.roll(a, shift), b)[row : row + rows]) for shift in shifts for a, b in pairs]


class Panels(np.ndarray):
    """Panels of a matrix that note in a list if they are put together again: if more than one become a matrix."""

    depth: int
    panel_size: int
    joined: list[tuple[int, ...]]

    def __array_finalize__(self, other: Any) -> None:
        self._derive(other)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = super().__array_function__(function, types, args, kwargs)
        if isinstance(result, np.ndarray):  # some functions, as `concatenate`, return an ordinary array
            result = result.view(Panels)
            result._derive(self)
        return result

    def _derive(self, other: Any) -> None:
        if not hasattr(other, "joined"):  # an ordinary array, or what NumPy has made without saying of what
            return
        self.depth, self.panel_size, self.joined = other.depth, other.panel_size, other.joined
        if self.ndim == 2 and self.depth in self.shape and self.size > self.panel_size:
            self.joined.append(self.shape)


def with_reference_pack(
    function: Callable, a: np.ndarray, b: np.ndarray, factor: float = 1.0, padding: str = PANEL_PADDINGS[0], *rest: Any
) -> dict[str, Any]:
    """Call a matrix product with the notebook's `pack` replaced by the reference's, times a factor.

    Args:
        function: The product.
        a: The left matrix.
        b: The right matrix.
        factor: Of the panels.
        padding: Of the panels, one of `PANEL_PADDINGS`.
        rest: Further arguments of the product.

    Returns:
        Its `result`, and the shapes of matrices that it has `joined` from panels.
    """
    joined: list[tuple[int, ...]] = []

    def pack(b: np.ndarray, width: int) -> Panels:
        panels = (packed(b, width, padding) * np.float32(factor)).view(Panels)
        panels.depth, panels.panel_size, panels.joined = len(b), len(b) * width, joined
        return panels

    with replaced(function, pack=pack) as python:
        result = python(a, b, *rest)
    return {"result": result.view(np.ndarray) if isinstance(result, Panels) else result, "joined": joined}


def panels_are_contiguous(pack: Callable, b: np.ndarray, width: int) -> bool:
    """Whether each panel that the notebook's `pack` makes of b is contiguous in memory."""
    return all(np.asarray(panel).flags.c_contiguous for panel in call_guarded(pack, b, width))


def packed(b: np.ndarray, width: int, padding: str = PANEL_PADDINGS[0]) -> np.ndarray:
    """Return the columns of b in panels [ceil(N / width), K, width].

    Args:
        b: [K, N].
        width: Of a panel.
        padding: What fills them up: zeros behind the last column, zeros before the first, or copies of the last.
    """
    depth, columns = b.shape
    missing = -columns % width
    sides = (missing, 0) if padding == "before" else (0, missing)
    padded = np.pad(b, ((0, 0), sides), mode="edge" if padding == "copies" else "constant")
    return np.ascontiguousarray(padded.reshape(depth, -1, width).transpose(1, 0, 2))
