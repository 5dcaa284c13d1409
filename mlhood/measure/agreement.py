"""What alternatives return, as NumPy arrays: taken apart, waited for, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mlhood.errors import MeasureError

_DEEPEST = 20


def leaves(result: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and numbers in a result with their place in it, such as `[0]['y']`; None holds nothing.

    Raises:
        MeasureError: Lists, tuples and dictionaries are nested deeper than 20.
    """
    if depth > _DEEPEST:
        raise MeasureError("the result is nested too deep", where=path[:80], expected=f"{_DEEPEST} levels at most")
    if isinstance(result, Mapping):
        inner = [(f"{path}[{key!r}]", value) for key, value in result.items()]
    elif isinstance(result, list | tuple):
        inner = [(f"{path}[{i}]", value) for i, value in enumerate(result)]
    else:
        if result is not None:
            yield path, result
        return
    for place, value in inner:
        yield from leaves(value, place, depth + 1)


def finisher(result: Any) -> Callable[[Any], object] | None:
    """Return what waits for a result of this kind, or None where results are there when the call returns.

    JAX returns before it has computed (its benchmarking guide: call `block_until_ready`).

    Raises:
        MeasureError: A torch tensor lies on another device, whose work is not waited for.
    """
    found = [leaf for _, leaf in leaves(result)]
    for leaf in found:
        device = getattr(getattr(leaf, "device", None), "type", "cpu")
        if device != "cpu":
            raise MeasureError(
                "the result is not in the processor's memory",
                expected="a tensor on the cpu",
                got=f"a tensor on {device}",
                todo="compare on the CPU: the clock does not wait for other devices",
            )
    if not any(hasattr(leaf, "block_until_ready") for leaf in found):
        return None
    return type(result).block_until_ready if hasattr(result, "block_until_ready") else _wait


def _wait(result: Any) -> None:
    for _, leaf in leaves(result):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()


def arrays(result: Any) -> dict[str, np.ndarray]:
    """Return copies of a result's arrays by their place in it: an alternative may write into the same memory again.

    Raises:
        MeasureError: Something in it is neither an array nor a number.
    """
    return {place: _array(place, leaf) for place, leaf in leaves(result)}


def _array(place: str, leaf: Any) -> np.ndarray:
    try:
        array = np.array(_from_torch(leaf) if hasattr(leaf, "detach") else leaf)
    except (TypeError, ValueError, RuntimeError) as error:
        raise MeasureError("this is no array", where=place or "result", got=f"{type(leaf).__name__}: {error}") from None
    if array.dtype == object:
        raise MeasureError("this is no array", where=place or "result", got=type(leaf).__name__)
    if array.dtype.kind == "V":  # bfloat16 and its like, which NumPy knows only by ml_dtypes
        array = array.astype(np.float32)
    return array


def _from_torch(tensor: Any) -> np.ndarray:
    """Return a tensor's values; NumPy has no bfloat16, and takes none that requires a gradient."""
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).detach().numpy()


def check_agreement(
    expected: tuple[str, dict[str, np.ndarray]], got: tuple[str, dict[str, np.ndarray]], rtol: float, atol: float
) -> None:
    """Say whether two alternatives agree.

    Args:
        expected: Name and arrays of the one that is right.
        got: Name and arrays of the other; NaN equals NaN.
        rtol: |got - expected| may be `rtol` times |expected|, plus
        atol: this times the largest finite |expected| of the array: sums that cancel are as wrong as their terms.

    Raises:
        MeasureError: They do not; it names the element that is furthest off.
    """
    (reference, right), (name, found) = expected, got
    who = f"{name!r} against {reference!r}"
    if right.keys() != found.keys():
        raise MeasureError(
            "the alternatives return different structures",
            where=who,
            expected=f"{len(right)} arrays at {list(right)[:5]}",
            got=f"{len(found)} arrays at {list(found)[:5]}",
        )
    for place, array in right.items():
        _check_array(f"{who}, result{place}", array, found[place], rtol, atol)


def _check_array(where: str, expected: np.ndarray, got: np.ndarray, rtol: float, atol: float) -> None:
    if expected.shape != got.shape:
        raise MeasureError("the alternatives disagree in shape", where=where, expected=expected.shape, got=got.shape)
    if expected.dtype.kind not in "fciub" or got.dtype.kind not in "fciub":
        if not np.array_equal(expected, got):
            raise MeasureError("the alternatives disagree", where=where, expected=expected, got=got)
        return
    wrong = ~np.isclose(got, expected, rtol=rtol, atol=atol * _scale(expected), equal_nan=True)
    if not wrong.any():
        return
    with np.errstate(all="ignore"):
        off = np.abs(np.subtract(got, expected, dtype=np.result_type(got, expected, np.float64)))
    off = np.where(wrong, np.where(np.isnan(off), np.inf, off), -1)
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(off), off.shape))
    raise MeasureError(
        "the alternatives disagree",
        where=f"{where}, element {list(worst)}; {int(wrong.sum()):,} of {wrong.size:,} elements differ",
        expected=expected[worst],
        got=got[worst],
        todo="correct the alternative, or allow more with rtol= and atol= if only the order of adding differs",
    )


def _scale(array: np.ndarray) -> float:
    finite = np.abs(array[np.isfinite(array)], dtype=None) if array.dtype.kind in "fc" else np.abs(array.astype(float))
    return float(finite.max(initial=0))
