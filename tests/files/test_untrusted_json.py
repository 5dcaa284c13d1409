"""JSON of which the values are counted before any is created."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.files.untrusted_json import JsonLimitError, has_at_most, loads

texts = st.text(st.sampled_from('a"\\,[{:\n\u00e9\U0001f600'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


def count(value) -> int:
    """The number of values and names in plain data."""
    if isinstance(value, dict):
        return 1 + sum(1 + count(item) for item in value.values())
    return 1 + (sum(map(count, value)) if isinstance(value, list) else 0)


@given(values, st.booleans())
def test_the_count_is_never_too_small_and_never_counts_what_is_in_a_string(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    empty = text.count(b"[]") + text.count(b"{}") + text.count(b"[") + text.count(b"{")
    assert not has_at_most(text, count(value) - 1)
    assert has_at_most(text, count(value) + empty)
    assert loads(text, max_bytes=len(text), max_values=count(value) + empty) == value


@given(st.binary() | texts.map(str.encode))
def test_any_bytes_are_counted(text):
    assert isinstance(has_at_most(text, 2), bool)


LIMIT = 100_000
MANY = {
    "empty objects": b"[" + b"{}," * 1_500_000 + b"0]",
    "objects": b"[" + b'{"":0},' * 600_000 + b"0]",
    "empty lists": b"[" + b"[]," * 1_500_000 + b"0]",
    "strings": b"[" + b'"ab",' * 900_000 + b"0]",
    "strings of separators": b'["' + b",[{:" * 900_000 + b'",' + b'"",' * 400_000 + b"0]",
    "escapes that never end": b'"' + b'\\"' * 2_000_000 + b"," * 200_000,
    "quotes": b'"' * 4_000_000,
}


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_many_values_are_refused_before_they_take_memory(text):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"more than 100,000 values|Extra data|Unterminated"):
            loads(text, max_bytes=1 << 23, max_values=LIMIT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text) + 250 * LIMIT


def test_other_faults_are_errors():
    with pytest.raises(JsonLimitError, match="1,001 bytes of JSON; the limit is 1,000"):
        loads(b" " * 1001, max_bytes=1000, max_values=9)
    for text in (b"", b"[", b"9" * 5000, b'"\xff'):
        with pytest.raises(ValueError, match=r"char \d|Exceeds the limit"):
            loads(text, max_bytes=10_000, max_values=9)
    with pytest.raises(RecursionError):
        loads(b"[" * 100_000, max_bytes=100_000, max_values=200_000)
    assert loads(b'"\xff,,,,,,"', max_bytes=99, max_values=2) == "\ufffd,,,,,,"
