"""The assertions of checks: they fail with what was expected, what the student's code returned, and where to look."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from mlhood.grading.rpc.codec import Remote

MAX_SHOWN_CHARACTERS = 300
ROUNDING = 1e-6  # relative; results may be computed in float32
RESEMBLANCE = 0.5  # correlation; that of two random arrays of some dozen values is smaller
ABSENT = object()
# terminal control characters, changes of the text direction, and line separators
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

NUMBA_ERRORS = ("TypingError:", "UnsupportedError:", "UnsupportedBytecodeError:", "LoweringError:")
# of NumPy's operator, and of Numba's, which needs SciPy
NO_PRODUCT = ("TypeError: unsupported operand type(s) for @", "ImportError: scipy")
ERROR_HINTS = {
    NUMBA_ERRORS: "Numba cannot compile this function; its formula may still be right. Numba supports numbers, arrays, "
    "range, min, max, and calls of other @compiled functions; sizes and indices must be integers (//, not /). Remove "
    "@compiled to run the function as plain Python and see whether it is right.",
    NO_PRODUCT: "there is no product of matrices where this is graded, neither NumPy's nor Numba's: write its loops",
}


class CheckFailed(AssertionError):
    """The answer to a check is wrong.

    Args:
        what: The fault, in one sentence.
        expected: The right answer.
        got: The student's answer.
        given: The input.
        hint: Where to look, and how to go on; students see it when they ask, or at the second failure.
        note: What else is wrong, such as an error in a cell of the task.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: object = None,
        got: object = ABSENT,
        given: object = None,
        hint: str | None = None,
        note: str | None = None,
    ) -> None:
        super().__init__(what)
        got = None if got is ABSENT else "None" if got is None else got
        parts = {"expected": expected, "got": got, "for": given, "hint": hint, "note": note}
        self.what = what
        self.parts = {label: format_value(part) for label, part in parts.items() if part is not None}

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"{label}: {part}" for label, part in self.parts.items())])


class NotWritten(CheckFailed):
    """A function is not written yet: no input and no hint says more."""


class CheckSkipped(Exception):
    """This machine cannot run the check, so its points are neither earned nor lost."""


class CheckUndecided(Exception):
    """Measurements leave the check undecided; the text is the reason."""


def format_value(value: object) -> str:
    """Return a value as a short text: large arrays by their shape, also in containers; long texts truncated."""
    if isinstance(value, np.ndarray) and value.size > 8:
        text = f"{value.dtype} array of shape {value.shape}"
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{key!r}: {_format_item(item)}' for key, item in value.items())}}}"
    elif isinstance(value, list):
        text = f"[{', '.join(map(_format_item, value))}]"
    elif isinstance(value, Remote):
        text = f"an object of type {value.type}"
    else:
        text = value if isinstance(value, str) else repr(value)
    return shortened(_printable(text), MAX_SHOWN_CHARACTERS)


def _format_item(value: object) -> str:
    return repr(value) if isinstance(value, str) else format_value(value)


def format_call(function: str, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> str:
    """Return a call as it could be written: `conv2d(float32 array of shape (1, 3, 6, 7), stride=2)`."""
    shown = [*map(format_value, arguments), *(f"{name}={format_value(value)}" for name, value in keywords.items())]
    return f"{function}({', '.join(shown)})"


def shortened(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def single_line(text: str) -> str:
    """Return a text that may contain a student's on one line: without control characters and line separators."""
    return " ".join(_printable(text).split())


def _printable(text: str) -> str:
    return CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode())


@contextmanager
def case(given: object, hint: str | None = None) -> Iterator[None]:
    """Add the input, and a hint, to failures in this block: an error of the student's code does not name its input.

    An error that says nothing about the formula has its own hint (`ERROR_HINTS`).
    """
    try:
        yield
    except NotWritten:
        raise
    except CheckFailed as failure:
        got = failure.parts.get("got", "")
        hint = next((text for errors, text in ERROR_HINTS.items() if got.startswith(errors)), hint)
        for label, part in (("for", given), ("hint", hint)):
            if part is not None:
                failure.parts.setdefault(label, format_value(part))
        raise


def fail(what: str, **parts) -> NoReturn:
    """Fail with a sentence and the parts of `CheckFailed`."""
    raise CheckFailed(what, **parts)


def true(condition: bool, what: str, **parts) -> None:
    """Fail with `what` unless the condition holds."""
    if not condition:
        raise CheckFailed(what, **parts)


def holds(check: Callable[..., object], *args: object, **kwargs: object) -> bool:
    """Whether a check, or a part of one, does not fail: a fault should cost the points of one check only."""
    try:
        check(*args, **kwargs)
    except CheckFailed:
        return False
    return True


def equal(got: object, expected: object, what: str, **parts) -> None:
    """Fail unless two pieces of plain data are equal."""
    if got != expected:
        raise CheckFailed(what, expected=expected, got=got, **parts)


def number(value: object, what: str, **parts) -> float:
    """Return the value as a float; fail unless it is one real number."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":  # a scalar of NumPy's, too
        return float(value[()])
    if isinstance(value, (bool, int, float)):
        return float(value)
    raise CheckFailed(f"no number in {what}", expected="one number", got=value, **parts)


def same_number(got: float, expected: float) -> bool:
    """Whether two numbers are equal; up to rounding, which may be float32's, unless both are integers."""
    if isinstance(got, int) and isinstance(expected, int):
        return got == expected
    return got == expected or math.isclose(got, expected, rel_tol=ROUNDING, abs_tol=1e-12)


def close_number(got: float, expected: float, what: str, **parts) -> None:
    """Fail unless two numbers are equal up to rounding."""
    if not same_number(got, expected):
        raise CheckFailed(what, expected=_format_number(expected), got=_format_number(got), **parts)


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e18 else f"{value:.6g}"


def array(value: object, shape: tuple[int, ...], what: str, **parts) -> np.ndarray:
    """Return the value as an array; fail unless it is numeric, finite and of that shape."""
    if isinstance(value, (list, float, int)):
        value = _from_list(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise CheckFailed(f"no array of numbers in {what}", expected=f"shape {shape}", got=value, **parts)
    if value.shape != shape:
        raise CheckFailed(f"wrong shape of {what}", expected=shape, got=value.shape, **parts)
    if not np.isfinite(value).all():
        raise CheckFailed(f"infinite values or NaN in {what}", expected="finite numbers", got=value, **parts)
    return value


def _from_list(value: object) -> object:
    try:
        return np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return value


def is_array(value: object, dtype: DTypeLike, what: str, **parts) -> np.ndarray:
    """Return the value; fail unless it is an array of this data type, as the rules at a notebook's top demand."""
    if not isinstance(value, np.ndarray):
        raise CheckFailed(f"no array in {what}", expected=f"a {np.dtype(dtype)} array", got=value, **parts)
    if value.dtype != dtype:
        parts["hint"] = (
            f"arithmetic has the widest type of its operands: which has another one? Or astype({np.dtype(dtype)})"
        )
        raise CheckFailed(f"wrong data type of {what}", expected=str(np.dtype(dtype)), got=str(value.dtype), **parts)
    return value


def integer(value: object, what: str, **parts) -> int:
    """Return the value as an int; fail unless it is one whole number of an integer type, Python's or NumPy's."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iu":
        return int(value[()])
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise CheckFailed(f"no integer in {what}", expected="an integer, as `//` and int() return it", got=value, **parts)


def sequence(value: object, kind: type[list] | type[tuple], what: str, **parts) -> list | tuple:
    """Return the value; fail unless it is the container that the text names, `list` or `tuple`."""
    if type(value) is not kind:
        raise CheckFailed(f"no {kind.__name__} in {what}", expected=f"a {kind.__name__}", got=value, **parts)
    return value


def close(
    got: object,
    expected: np.ndarray,
    what: str,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    dtype: DTypeLike | None = None,
    **parts,
) -> None:
    """Fail unless an array has the expected shape and values: |got - expected| <= atol + rtol * |expected|.

    With `dtype`, it has to be an array of that type, not only numbers.
    """
    if dtype is not None:
        is_array(got, dtype, what, **parts)
    values = array(got, expected.shape, what, **parts)
    if np.allclose(values, expected, rtol=rtol, atol=atol):
        return
    worst = np.unravel_index(np.argmax(np.abs(values - expected)), expected.shape)
    position = "".join(f"[{i}]" for i in worst)
    margin = atol + rtol * abs(expected[worst])
    raise CheckFailed(
        f"wrong values in {what}",
        expected=f"{expected[worst]:z.6g} (± {margin:.2g}) at {position or 'its only element'}",
        got=f"{values[worst]:.6g}",
        **parts,
    )


def integers(got: object, expected: np.ndarray, what: str, *, typed: bool) -> None:
    """Fail unless an array has the expected shape and integers, of the same type or, unless `typed`, of more bits."""
    kind, bits = expected.dtype, 8 * expected.dtype.itemsize
    own = got.dtype if isinstance(got, np.ndarray) else None
    if own is None or own.kind != kind.kind or own.itemsize < kind.itemsize or (typed and own != kind):
        wanted = f"an array of {kind}" if typed else f"an array of integers of {bits} bits or more"
        raise CheckFailed(f"wrong data type of {what}", expected=wanted, got=own or got)
    values = array(got, expected.shape, what)
    wrong = np.argwhere(values != expected)
    if len(wrong):
        index = tuple(wrong[0])
        position = "".join(f"[{i}]" for i in index)
        share = f"{values[index]}; {len(wrong) / expected.size:.0%} of all values are wrong"
        raise CheckFailed(f"wrong values in {what}", expected=f"{expected[index]} at {position}", got=share)


def resembles(got: object, expected: np.ndarray, what: str, **parts) -> None:
    """Fail unless an array varies as the expected one does, whether its values are right or not.

    For checks of how a result is computed, which cost no points if it is not quite right: something has to be computed.
    """
    values = array(got, expected.shape, what, **parts).astype(np.float64).ravel()
    wanted = expected.astype(np.float64).ravel()
    varies = values.size > 1 and values.std() > 0 and float(np.corrcoef(values, wanted)[0, 1]) > RESEMBLANCE
    what = f"the values do not resemble the right ones in {what}"
    true(varies, what, expected=expected.ravel()[:4], got=values[:4], **parts)


def mapping(value: object, keys: tuple[Hashable, ...], what: str, **parts) -> Mapping[Any, object]:
    """Return the value; fail unless it is a dictionary with (at least) these keys."""
    if not isinstance(value, dict):
        expected = f"the keys {', '.join(map(str, keys))}"
        raise CheckFailed(f"no dictionary in {what}", expected=expected, got=value, **parts)
    missing = [str(key) for key in keys if key not in value]
    if missing:
        raise CheckFailed(f"{', '.join(missing)} missing in {what}", expected=list(keys), got=list(value), **parts)
    return value
