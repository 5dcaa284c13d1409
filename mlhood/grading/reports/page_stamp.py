"""Pages that need not be written again: each ends with a comment, a hash of what it was made from and of its text.

What a page was made from is not only its content: also this package, whose templates may have changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from functools import cache
from pathlib import Path

BEGIN, END = b"<!-- ", b" -->\n"
MAX_PAGE_BYTES = 64 << 20


def stamped(page: str, content: str) -> bytes:
    """Return a page with its stamp; `content` is what it was made from, as text."""
    data = page.encode("utf-8", "replace")
    return data + _stamp(data, content)


def is_current(path: Path, content: str) -> bool:
    """Return whether the file is the page that was made from this content, complete and unchanged."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_PAGE_BYTES:
            return False
        data = path.read_bytes()
    except OSError:
        return False
    page, begin, rest = data.rpartition(BEGIN)
    return bool(page) and begin + rest == _stamp(page, content)


def _stamp(page: bytes, content: str) -> bytes:
    digest = hashlib.sha256(_package_digest())
    for part in (content.encode("utf-8", "replace"), page):
        digest.update(hashlib.sha256(part).digest())
    return BEGIN + digest.hexdigest().encode() + END


@cache
def _package_digest() -> bytes:
    """Return a hash of what makes the pages: this package's version, and the code and templates of this folder."""
    digest = hashlib.sha256(importlib.metadata.version("mlhood").encode())
    for path in sorted(path for path in Path(__file__).parent.rglob("*") if path.suffix in {".py", ".j2", ".css"}):
        digest.update(path.read_bytes())
    return digest.digest()
