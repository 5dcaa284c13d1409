"""The vocabulary of checks: state what should be, and fail with what was expected, what came, and where to look."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import numpy as np

from mlhood.grading.rpc.codec import Remote

SHOWN_CHARACTERS = 300
ROUNDING = 1e-6  # relative; results may be computed in float32
ABSENT = object()
# what could steer a terminal, turn the direction of the text around it, or end a line
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class CheckFailed(AssertionError):
    """The answer to a check is wrong.

    Args:
        what: One sentence that names the fault.
        expected: What the right answer is.
        got: What came.
        given: For which input.
        hint: Where to look.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: object = None,
        got: object = ABSENT,
        given: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        said = {} if got is ABSENT else {"got": repr(got) if got is None else got}
        parts = {"expected": expected, **said, "for": given, "hint": hint}
        self.what = what
        self.parts = {label: show(part) for label, part in parts.items() if part is not None}

    def __str__(self) -> str:
        return "\n".join([self.what, *(f"{label}: {part}" for label, part in self.parts.items())])


class CheckSkipped(Exception):
    """This machine cannot ask the question; it counts neither for nor against the student."""


def show(value: object) -> str:
    """A value in one short piece of text: arrays by shape, long texts cut."""
    if isinstance(value, np.ndarray) and value.size > 8:
        text = f"{value.dtype} array of shape {value.shape}"
    elif isinstance(value, Remote):
        text = f"an object of type {value.type}"
    else:
        text = value if isinstance(value, str) else repr(value)
    text = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def sentence(text: str) -> str:
    """Words that may hold a student's, on one line: no control characters, and nothing that passes for another line."""
    return " ".join(CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.encode("utf-8", "replace").decode()).split())


@contextmanager
def case(given: object, hint: str | None = None) -> Iterator[None]:
    """Say for which input a call fails that stops with an error of the student's own, which alone does not tell."""
    try:
        yield
    except CheckFailed as failure:
        for label, part in (("for", given), ("hint", hint)):
            if part is not None:
                failure.parts.setdefault(label, show(part))
        raise


def fail(what: str, **parts) -> NoReturn:
    """Fail with a sentence and the parts of `CheckFailed`."""
    raise CheckFailed(what, **parts)


def true(condition: bool, what: str, **parts) -> None:
    """Fail with `what` unless the condition holds."""
    if not condition:
        raise CheckFailed(what, **parts)


def equal(got: object, expected: object, what: str, **parts) -> None:
    """Fail unless two pieces of plain data are equal."""
    if got != expected:
        raise CheckFailed(what, expected=expected, got=got, **parts)


def number(value: object, what: str, **parts) -> float:
    """The value as a float; fails on everything but one real number."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biuf":
        return float(value.reshape(())[()])
    if isinstance(value, (bool, int, float)):
        return float(value)
    raise CheckFailed(f"no number in {what}", expected="one number", got=value, **parts)


def same_number(got: float, expected: float) -> bool:
    """Whether two numbers are equal up to rounding, which may be float32's."""
    return got == expected or math.isclose(got, expected, rel_tol=ROUNDING, abs_tol=1e-12)


def close_number(got: float, expected: float, what: str, **parts) -> None:
    """Fail unless two numbers are equal up to rounding."""
    if not same_number(got, expected):
        raise CheckFailed(what, expected=_show_number(expected), got=_show_number(got), **parts)


def _show_number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e18 else f"{value:.6g}"


def array(value: object, shape: tuple[int, ...], what: str, **parts) -> np.ndarray:
    """The value as a finite numeric array of that shape; fails on everything else."""
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


def close(got: object, expected: np.ndarray, what: str, *, rtol=1e-4, atol=1e-5, **parts) -> None:
    """Fail unless an array has the expected shape and values: |got - expected| <= atol + rtol * |expected|."""
    found = array(got, expected.shape, what, **parts)
    if np.allclose(found, expected, rtol=rtol, atol=atol):
        return
    worst = np.unravel_index(np.argmax(np.abs(found - expected)), expected.shape)
    position = "".join(f"[{i}]" for i in worst)
    margin = atol + rtol * abs(expected[worst])
    raise CheckFailed(
        f"wrong values in {what}",
        expected=f"{expected[worst]:.6g} (± {margin:.2g}) at {position or 'its only place'}",
        got=f"{found[worst]:.6g}",
        **parts,
    )


def mapping(value: object, keys: tuple[str, ...], what: str, **parts) -> Mapping[str, object]:
    """The value as a dictionary that has (at least) these keys."""
    if not isinstance(value, dict):
        raise CheckFailed(f"no dictionary in {what}", expected=f"the keys {', '.join(keys)}", got=value, **parts)
    missing = [key for key in keys if key not in value]
    if missing:
        raise CheckFailed(f"{', '.join(missing)} missing in {what}", expected=list(keys), got=list(value), **parts)
    return value
