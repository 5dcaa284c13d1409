"""Hints about compilation errors and missing products: such an error says nothing about the formula."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlhood.grading.checks import expect

ERRORS = ("TypingError", "UnsupportedError", "UnsupportedBytecodeError", "LoweringError", "CompilerError")
HINT = (
    "Numba cannot compile this function; its formula may still be right. Numba supports numbers, arrays, range, min, "
    "max, and calls of other @compiled functions; sizes and indices must be integers (//, not /). Remove @compiled to "
    "run the function as plain Python and see whether it is right."
)
# of NumPy's operator, and of Numba's, which needs SciPy
NO_PRODUCT = ("TypeError: unsupported operand type(s) for @", "ImportError: scipy")
NO_PRODUCT_HINT = "there is no product of matrices where this is graded, neither NumPy's nor Numba's: write its loops"


@contextmanager
def case(given: object = None, hint: str | None = None) -> Iterator[None]:
    """Like `expect.case`, but a compilation error and a missing product get hints of their own.

    Args:
        given: The input.
        hint: For every other failure.
    """
    try:
        with expect.case(given, hint):
            yield
    except expect.CheckFailed as failure:
        got = failure.parts.get("got", "")
        if got.startswith(tuple(f"{error}:" for error in ERRORS)):
            failure.parts["hint"] = expect.format_value(HINT)
        elif got.startswith(NO_PRODUCT):
            failure.parts["hint"] = expect.format_value(NO_PRODUCT_HINT)
        raise
