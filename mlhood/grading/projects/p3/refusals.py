"""What Numba refuses to compile, told as such: the same error in every check says nothing of the convolution."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlhood.grading.checks import expect

ERRORS = ("TypingError", "UnsupportedError", "UnsupportedBytecodeError", "LoweringError", "CompilerError")
HINT = (
    "Numba cannot compile this; the formula may be right. It takes numbers, arrays, range, min, max, and functions "
    "that are @compiled, too; sizes and indices are whole (// and not /). Without @compiled the function runs in plain "
    "Python, which tells whether it is right."
)


@contextmanager
def case(given: object = None, hint: str | None = None) -> Iterator[None]:
    """As `expect.case`, but where Numba refuses, the hint is about that.

    Args:
        given: For which input.
        hint: Where to look if anything else is wrong.
    """
    try:
        with expect.case(given, hint):
            yield
    except expect.CheckFailed as failure:
        if failure.parts.get("got", "").startswith(tuple(f"{error}:" for error in ERRORS)):
            failure.parts["hint"] = expect.show(HINT)
        raise
