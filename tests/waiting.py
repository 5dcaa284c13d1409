"""Waiting for other processes and threads, on a machine however busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
PATIENCE = 600  # seconds, only reached by what never ends


def wait_until(condition: Callable[[], Value]) -> Value:
    """Wait until a condition is true, but no longer than `PATIENCE`; return its value."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value
