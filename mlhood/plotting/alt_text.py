"""Alternative text of figures: what a sighted reader takes from one, for those who do not see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from matplotlib.figure import Figure


def set_alt_text(figure: Figure, *sentences: str) -> Figure:
    """Attach alternative text to a figure, which notebooks store with its picture and their pages show as `alt`.

    IPython asks an object for `_repr_mimebundle_`: without data in it, the usual formatters still draw the figure, and
    the metadata is added to theirs.

    Args:
        figure: A figure that a notebook shows, by `plt.show()` or as a cell's last expression.
        sentences: One or two, with the numbers that matter; line breaks in them become spaces.

    Returns:
        The same figure.
    """
    vars(figure)["_repr_mimebundle_"] = partial(_mimebundle, " ".join(" ".join(sentences).split()))
    return figure


def alt_text(figure: Figure) -> str:
    """Return the alternative text of a figure, empty if it has none."""
    bundle = vars(figure).get("_repr_mimebundle_")
    return bundle()[1]["image/png"]["alt"] if bundle else ""


def listing(values: Mapping[str, object] | Iterable[tuple[object, object]]) -> str:
    """Return names and their values as text: `naive 0.9, blocked 12`."""
    pairs = values.items() if isinstance(values, Mapping) else values
    return ", ".join(f"{name} {value}" for name, value in pairs)


def _mimebundle(text: str, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    return {}, {"image/png": {"alt": text}}
