"""Pytrees: arguments that are nested dictionaries, lists and tuples of arrays, as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def map_with_path(function: Callable[..., Any], *trees: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a tree like the first one, with each leaf replaced by what the function returns.

    Args:
        function: Takes a path such as "layer1.0.conv1.weight", and the leaves of all trees at this path.
        trees: Trees of the same structure.
        path: The path of these trees, when they are subtrees.
    """
    first = trees[0]
    if isinstance(first, dict):
        return {key: map_with_path(function, *(tree[key] for tree in trees), path=(*path, str(key))) for key in first}
    if isinstance(first, list | tuple):
        parts = enumerate(zip(*trees, strict=True))
        return type(first)(map_with_path(function, *subtrees, path=(*path, str(i))) for i, subtrees in parts)
    return function(".".join(path), *trees)
