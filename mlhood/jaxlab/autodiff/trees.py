"""Pytrees: arguments that are nested dictionaries, lists and tuples of arrays, as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlhood.errors import AutodiffError


def map_with_path(function: Callable[..., Any], *trees: Any, path: tuple[str, ...] = ()) -> Any:
    """Return a tree like the first one, with each leaf replaced by what the function returns.

    Args:
        function: Takes a path such as "layer1.0.conv1.weight", and the leaves of all trees at this path.
        trees: Trees of the same structure.
        path: The path of these trees, when they are subtrees.

    Raises:
        AutodiffError: The structures differ.
    """
    first = trees[0]
    if isinstance(first, dict):
        _check(path, [sorted(tree) if isinstance(tree, dict) else tree for tree in trees])
        return {key: map_with_path(function, *(tree[key] for tree in trees), path=(*path, str(key))) for key in first}
    if isinstance(first, list | tuple):
        _check(path, [len(tree) if isinstance(tree, list | tuple) else tree for tree in trees])
        parts = enumerate(zip(*trees, strict=True))
        return type(first)(map_with_path(function, *subtrees, path=(*path, str(i))) for i, subtrees in parts)
    return function(".".join(path), *trees)


def _check(path: tuple[str, ...], structures: list[Any]) -> None:
    expected = structures[0]
    for got in structures[1:]:
        if type(got) is not type(expected) or got != expected:
            raise AutodiffError(
                "the trees have different structures",
                where=".".join(path) or "the root",
                expected=expected,
                got=got if isinstance(got, list | int) else type(got).__name__,
            )
