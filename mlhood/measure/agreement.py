"""The results of alternatives as NumPy arrays: flattened, waited for, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mlhood.errors import MeasureError


def leaves(result: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the arrays and numbers in a result with their path, such as `[0]['y']`; None has no leaves."""
    if isinstance(result, Mapping):
        children = [(f"{path}[{key!r}]", value) for key, value in result.items()]
    elif isinstance(result, list | tuple):
        children = [(f"{path}[{i}]", value) for i, value in enumerate(result)]
    else:
        if result is not None:
            yield path, result
        return
    for child_path, value in children:
        yield from leaves(value, child_path)


def finisher(result: Any) -> Callable[[Any], object] | None:
    """Return a function that waits for results of this kind, or None if a call returns finished results.

    JAX dispatches asynchronously (see its benchmarking guide: call `block_until_ready`).

    Raises:
        MeasureError: A torch tensor is on another device, whose work the clock does not wait for.
    """
    values = [leaf for _, leaf in leaves(result)]
    for leaf in values:
        device = getattr(getattr(leaf, "device", None), "type", "cpu")
        if device != "cpu":
            raise MeasureError(
                "the result is not in the processor's memory",
                expected="a tensor on the cpu",
                got=f"a tensor on {device}",
                todo="compare on the CPU: the clock does not wait for other devices",
            )
    if not any(hasattr(leaf, "block_until_ready") for leaf in values):
        return None
    return type(result).block_until_ready if hasattr(result, "block_until_ready") else _block


def _block(result: Any) -> None:
    for _, leaf in leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()


def arrays(result: Any) -> dict[str, np.ndarray]:
    """Return copies of a result's arrays by path; copies, as an alternative may reuse its output buffer.

    Raises:
        MeasureError: A leaf is neither an array nor a number.
    """
    return {path: _array(path, leaf) for path, leaf in leaves(result)}


def _array(path: str, leaf: Any) -> np.ndarray:
    try:
        if hasattr(leaf, "detach"):  # torch: NumPy has no bfloat16, and rejects tensors that require gradients
            leaf = (leaf.float() if str(leaf.dtype) == "torch.bfloat16" else leaf).detach().numpy()
        array = np.array(leaf)
    except (TypeError, ValueError, RuntimeError) as error:
        got = f"{type(leaf).__name__}: {error}"
        raise MeasureError("not an array or a number", where=path or "result", got=got) from None
    if array.dtype == object:
        raise MeasureError("not an array or a number", where=path or "result", got=type(leaf).__name__)
    if array.dtype.kind == "V":  # bfloat16 and others that NumPy knows only through ml_dtypes
        array = array.astype(np.float32)
    return array


def check_agreement(
    expected: tuple[str, dict[str, np.ndarray]], got: tuple[str, dict[str, np.ndarray]], rtol: float, atol: float
) -> None:
    """Check that two alternatives agree: |got - expected| <= rtol * |expected| + atol * scale.

    The scale is the largest finite |expected| of an array, as the error of a sum with cancellation is relative to its
    terms.

    Args:
        expected: Name and arrays of the reference.
        got: Name and arrays of the other; NaN equals NaN.
        rtol: Tolerance relative to the element.
        atol: Tolerance relative to the scale.

    Raises:
        MeasureError: They disagree; the message names the element with the largest error.
    """
    (reference, right), (name, other) = expected, got
    where = f"{name!r} against {reference!r}"
    if right.keys() != other.keys():
        raise MeasureError(
            "the alternatives return different structures",
            where=where,
            expected=f"{len(right)} arrays at {list(right)[:5]}",
            got=f"{len(other)} arrays at {list(other)[:5]}",
        )
    for path, array in right.items():
        _check_array(f"{where}, result{path}", array, other[path], rtol, atol)


def _check_array(where: str, expected: np.ndarray, got: np.ndarray, rtol: float, atol: float) -> None:
    if expected.shape != got.shape:
        raise MeasureError("the alternatives disagree in shape", where=where, expected=expected.shape, got=got.shape)
    if expected.dtype.kind not in "fciub" or got.dtype.kind not in "fciub":
        if not np.array_equal(expected, got):
            raise MeasureError("the alternatives disagree", where=where, expected=expected, got=got)
        return
    finite = expected[np.isfinite(expected)] if expected.dtype.kind in "fc" else expected.astype(float)
    scale = float(np.abs(finite).max(initial=0))
    wrong = ~np.isclose(got, expected, rtol=rtol, atol=atol * scale, equal_nan=True)
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        error = np.abs(np.subtract(got, expected, dtype=np.result_type(got, expected, np.float64)))
    error = np.where(wrong, np.where(np.isnan(error), np.inf, error), -1)
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape))
    raise MeasureError(
        "the alternatives disagree",
        where=f"{where}, element {list(worst)}; {int(wrong.sum()):,} of {wrong.size:,} elements differ",
        expected=expected[worst],
        got=got[worst],
        todo="correct the alternative, or increase rtol= and atol= if only the order of summation differs",
    )
