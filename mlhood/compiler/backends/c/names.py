"""Identifiers and comments in C, from names in a model, which may hold anything."""

from __future__ import annotations

import re

_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof "
    "bool true false complex imaginary main errno NULL NAN INFINITY memcpy memset memmove arena linux unix i386 near "
    "far nullptr alignas alignof constexpr static_assert thread_local "
    "printf fprintf fopen fclose fread getc ungetc stderr FILE EOF size_t count arguments file name data bytes whole "
    "read_file page_input page_output page_run"
)
_MAX_CHARS = 40
_MATH = (
    "acos asin atan ceil cos cosh erf exp expm1 fabs floor fmax fmin fmod log log1p pow rint round sin sinh sqrt "
    "tan tanh trunc gamma lgamma tgamma j0 j1 jn y0 y1 yn div abs labs index signal"
)
RESERVED = frozenset([*_KEYWORDS.split(), *_MATH.split(), *(name + "f" for name in _MATH.split())])


def identifier(name: str) -> str:
    """Return a name as an identifier of C: letters, digits and single underscores of ASCII, at most 40."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_MAX_CHARS].strip("_")
    return text if text[:1].isalpha() else f"v{text}"


class Names:
    """Distinct identifiers for names.

    Args:
        taken: Identifiers that are not given out; keywords and functions of the standard library never are.
    """

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(RESERVED | taken)
        self._counts: dict[str, int] = {}

    def new(self, name: str) -> str:
        """Return an identifier that is like the name, and that no earlier call returned."""
        base = identifier(name)
        text = base
        while text in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            text = f"{base}_{self._counts[base]}"
        self._taken.add(text)
        return text


def comment(text: str) -> str:
    """Return a text that neither ends a comment nor opens one, has no trigraph, line break or letter beyond ASCII."""
    text = re.sub(r"[^ -~]|\\", "_", text)
    text = re.sub(r"\*(?=/)|/(?=\*)", r"\g<0> ", text)
    return re.sub(r"\?(?=\?)", "? ", text)
