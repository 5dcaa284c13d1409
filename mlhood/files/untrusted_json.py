"""Parse JSON that somebody else wrote, with a limit on the memory that its values take.

Three characters, `{},`, become an object of 64 bytes, so a limit on the length of a text does not bound what it takes
once it is parsed. Here the values are counted first, without creating any of them.
"""

from __future__ import annotations

import json
import re
from typing import Any

# every value but the first follows one of these, unless they are part of a string
SEPARATORS = (b",", b"[", b"{", b":")
_STRING = re.compile(rb'"[^"]*"?')


class JsonLimitError(ValueError):
    """A text of JSON is longer, or has more values, than its reader accepts; the message says which."""


def loads(text: bytes, *, max_bytes: int, max_values: int) -> Any:
    """Parse JSON in UTF-8, in which damaged characters are replaced.

    Parsing takes at most about 8 `max_bytes` + 250 `max_values` bytes, of which at most half is kept.

    Args:
        text: The JSON.
        max_bytes: Largest length of the text.
        max_values: Largest number of values, names included.

    Raises:
        JsonLimitError: A limit is exceeded.
        ValueError: It is not JSON, or has an integer of thousands of digits.
        RecursionError: It is nested too deeply.
    """
    if len(text) > max_bytes:
        raise JsonLimitError(f"{len(text):,} bytes of JSON; the limit is {max_bytes:,}")
    if not has_at_most(text, max_values):
        raise JsonLimitError(f"more than {max_values:,} values in JSON")
    return json.loads(text.decode("utf-8", "replace"))


def has_at_most(text: bytes, max_values: int) -> bool:
    """Whether JSON has at most so many values; counted in linear time, whether it is well formed or not."""
    if _count(text) <= max_values:  # separators in strings are counted, too, which seldom matters
        return True
    unescaped = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * max_values:
        return False
    return _count(_STRING.sub(b"", unescaped)) <= max_values


def _count(text: bytes) -> int:
    return 1 + sum(map(text.count, SEPARATORS))
