"""Validation of what the figures are asked to draw; every check raises a KernelError."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from mlhood.errors import KernelError


def check_counts(least: int = 1, **counts: int) -> None:
    """Check that every keyword argument is an integer of at least `least`."""
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < least:
            raise KernelError(f"cannot draw this {name}", expected=f"an integer >= {least}", got=repr(value))


def check_at_most(what: str, count: int, most: int) -> None:
    """Check that a figure with `count` of something is still legible."""
    if count > most:
        raise KernelError(
            f"too many {what} for a legible figure", expected=f"at most {most}", got=count, todo="draw a smaller case"
        )


def check_not_empty(data: Mapping | Sequence, what: str) -> None:
    """Check that there is something to draw."""
    if not data:
        raise KernelError("there is nothing to draw", expected=f"one or more {what}", got="none")


def check_positive(what: str, value: float, least: float | None = None) -> None:
    """Check that a number is finite and positive, or at least `least`."""
    in_range = value > 0 if least is None else value >= least
    if not (in_range and math.isfinite(value)):
        bound = "> 0" if least is None else f">= {least:g}"
        raise KernelError(f"cannot draw this {what}", expected=f"a finite number {bound}", got=repr(value))


def check_ordered(what: str, low: float, value: float, high: float) -> None:
    """Check that a value lies within its own range."""
    if not low <= value <= high < math.inf:
        raise KernelError(
            f"{what} is outside its own range", expected="low <= rate <= high", got=f"{low:g}, {value:g}, {high:g}"
        )
