"""Identifiers and comments in C, from names in a model, which may hold anything."""

from __future__ import annotations

import re

from mlhood.compiler.backends.c.literals import TYPES

# Keywords of C and C++; and macros that, against the custom, are not in capitals, of the headers that a program may
# include with the model's.
_KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas "
    "alignof and and_eq asm bitand bitor bool catch class compl concept const_cast consteval constexpr constinit "
    "co_await co_return co_yield decltype delete dynamic_cast explicit export false friend mutable namespace new "
    "noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires static_assert "
    "static_cast template this thread_local throw true try typeid typename typeof typeof_unqual using virtual xor "
    "xor_eq complex imaginary errno stdin stdout stderr linux unix i386 near far main"
)
_MAX_CHARS = 40


def identifier(name: str) -> str:
    """Return a name as an identifier of C: letters, digits and single underscores of ASCII, at most 40.

    A name in capitals, as macros have them, becomes small.
    """
    text = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_MAX_CHARS].strip("_")
    text = text.lower() if text.isupper() else text
    return text if text[:1].isalpha() else f"v{text}"


class Names:
    """Distinct identifiers for names, also where capitals do not count, as in macros.

    None is a keyword, a type of an element, or a macro of a header, as those are in capitals. One may be a function of
    a header, or a type that is not used, which parameters and local variables are free to hide. At file scope, all
    follow the program's prefix.

    Args:
        taken: Identifiers that are not given out, in small letters.
    """

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = {*_KEYWORDS.split(), *TYPES.values(), *taken}
        self._counts: dict[str, int] = {}

    def new(self, name: str, prefix: str = "") -> str:
        """Return an identifier that is like the name, follows the prefix, and that no earlier call returned."""
        base = prefix + identifier(name)
        text = base
        while text.lower() in self._taken:
            self._counts[base] = self._counts.get(base, 0) + 1
            text = f"{base}_{self._counts[base]}"
        self._taken.add(text.lower())
        return text


def comment(text: str) -> str:
    """Return a text that neither ends a comment nor opens one, has no trigraph, line break or letter beyond ASCII."""
    text = re.sub(r"[^ -~]|\\", "_", text)
    text = re.sub(r"\*(?=/)|/(?=\*)", r"\g<0> ", text)
    return re.sub(r"\?(?=\?)", "? ", text)
