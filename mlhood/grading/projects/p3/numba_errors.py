"""A hint about Numba's compilation errors: the same error in every check says nothing about the convolution."""

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


@contextmanager
def case(given: object = None, hint: str | None = None) -> Iterator[None]:
    """Like `expect.case`, but a compilation error gets the hint about Numba.

    Args:
        given: The input.
        hint: For every other failure.
    """
    try:
        with expect.case(given, hint):
            yield
    except expect.CheckFailed as failure:
        if failure.parts.get("got", "").startswith(tuple(f"{error}:" for error in ERRORS)):
            failure.parts["hint"] = expect.format_value(HINT)
        raise
