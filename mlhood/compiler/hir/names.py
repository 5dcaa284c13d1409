"""What building a graph needs: unique names, and a pause of the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def unique_name(name: str, taken: set[str]) -> str:
    """Return a name, with the lowest number behind it that makes it one not taken yet, and add it to those."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


@contextmanager
def gc_paused() -> Iterator[None]:
    """Run without garbage collection; restore its previous state afterwards. May be nested.

    Nodes and values refer to each other, so nothing can be freed while a graph is being built. The collector would
    scan it anyway, and longer each time the graph has grown: with 50,000 nodes that takes half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
