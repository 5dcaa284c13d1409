"""Arguments that hold several arrays: dictionaries, lists and tuples, nested, as JAX takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlhood.errors import AutodiffError


def mapped(function: Callable[..., Any], *trees: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a tree like the first one, with what the function makes of each leaf and its name.

    Args:
        function: Takes a name such as "layer1.0.conv1.weight", and the leaves of all trees at this place.
        trees: Alike in structure.
        path: Of names that lead to these trees.

    Raises:
        AutodiffError: The trees differ.
    """
    first = trees[0]
    if isinstance(first, dict):
        _check(path, [sorted(one) if isinstance(one, dict) else one for one in trees])
        return {key: mapped(function, *(one[key] for one in trees), path=(*path, str(key))) for key in first}
    if isinstance(first, list | tuple):
        _check(path, [len(one) if isinstance(one, list | tuple) else one for one in trees])
        parts = enumerate(zip(*trees, strict=True))
        return type(first)(mapped(function, *leaves, path=(*path, str(i))) for i, leaves in parts)
    return function(".".join(path), *trees)


def _check(path: tuple[str, ...], kinds: list[Any]) -> None:
    for kind in kinds[1:]:
        if type(kind) is not type(kinds[0]) or kind != kinds[0]:
            raise AutodiffError(
                "two trees that belong together differ", where=".".join(path) or "the whole tree",
                expected=kinds[0], got=kind if isinstance(kind, list | int) else type(kind).__name__,
            )  # fmt: skip
