"""Probes that run in the student's process, on the student's functions; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mlhood.grading.projects.p3.reference import ROWS, STEPS, Steps, columns, convolution
from mlhood.grading.rpc.guard import guarded

WRAPPED = ("py_func", "__wrapped__", "func", "__func__")  # of Numba, of decorators, of partial functions, of methods
MAX_WRAPPERS = 20
PANEL_PADDINGS = (
    "behind",
    "before",
    "copies",
)  # what fills panels up: zeros behind b, zeros before it, its last column


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
        if function in (np.dot, np.tensordot, np.einsum, np.inner, np.vdot, np.linalg.multi_dot):
            self.products.append(function.__name__)
            return function(*_plain(args), **_plain(kwargs))
        return super().__array_function__(function, types, args, kwargs)

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
        Its `result`; the numbers of `images` passed to `im2col` and of `products` with the columns; and as `broken`
            what `rpc.guard` says of the call. A product with a copy that is made by `np.asarray` goes unnoticed.
    """
    images, products = [], []

    def im2col(x: np.ndarray, kernel: tuple[int, int], stride: Steps, padding: Steps) -> np.ndarray:
        images.append(x)
        matrix = columns(np.asarray(x, np.float32), kernel, stride, padding, rows, steps)
        return _counting(matrix * np.float32(factor), products)

    with replaced(function, im2col=im2col) as python:
        result, broken = guarded(python, [*arrays, stride, padding])
    return {"result": _plain(result), "images": len(images), "products": len(products), "broken": broken}


@contextmanager
def replaced(function: Callable, **replacements: Any) -> Iterator[Callable]:
    """Replace functions of the notebook by others, and yield the function as plain Python that sees them.

    What Numba has compiled sees no replacement, so that all compiled functions of the notebook are replaced by their
    Python versions, too. It sees through decorators, partial functions, methods and objects that can be called.
    """
    names = _globals(function)
    compiled = {name: value.py_func for name, value in names.items() if hasattr(value, "py_func")}
    before = {name: names[name] for name in compiled | replacements if name in names}
    names.update(compiled | replacements)
    try:
        yield getattr(function, "py_func", function)
    finally:
        for name in replacements:
            names.pop(name, None)
        names.update(before)


def _globals(function: Any) -> dict[str, Any]:
    """Return the global names that a function sees, of the innermost of those that wrap one another."""
    for _ in range(MAX_WRAPPERS):
        inner = next((getattr(function, name) for name in WRAPPED if hasattr(function, name)), None)
        if inner is None and not hasattr(function, "__globals__"):
            inner = vars(type(function)).get("__call__")  # of an object that can be called
        if inner is None:
            break
        function = inner
    return getattr(function, "__globals__", {})


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
        The `results`, and how often the convolution was `called` for each case.
    """
    called: list[int] = []

    def marked(x: np.ndarray, w: np.ndarray, bias: np.ndarray, stride: int, padding: int) -> np.ndarray:
        called[-1] += 1
        return convolution(x, w, bias, stride, padding).astype(np.float32) + np.float32(1000)

    convolve = mixed([tuple(shape) if isinstance(shape, list) else shape for shape in chosen], marked)
    results = []
    for x, w, bias in cases:
        called.append(0)
        results.append(np.array(convolve(x, w, bias, *steps)))
    return {"results": results, "called": called}


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


def no_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return zeros in the place of a product: with it, `products` takes as long as everything else in it."""
    return np.zeros((a.shape[0], b.shape[1]), np.float32)


def with_reference_pack(
    function: Callable, a: np.ndarray, b: np.ndarray, factor: float = 1.0, padding: str = PANEL_PADDINGS[0], *rest: Any
) -> Any:
    """Call a matrix product with the notebook's `pack` replaced by the reference's, times a factor.

    Args:
        function: The product.
        a: The left matrix.
        b: The right matrix.
        factor: Of the panels.
        padding: Of the panels, one of `PANEL_PADDINGS`.
        rest: Further arguments of the product.
    """
    with replaced(function, pack=lambda b, width: packed(b, width, padding) * np.float32(factor)) as python:
        return python(a, b, *rest)


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
