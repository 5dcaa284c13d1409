"""Accesses to simulated caches, one by one."""

import numpy as np

from mlhood.dataflow.cache.hierarchy import Hierarchy, look_up


def access(hierarchy: Hierarchy, addresses, sizes=1) -> None:
    """Look up accesses; one that crosses lines counts once, as a hit of the farthest level that served it."""
    starts = np.asarray(addresses, np.int64)
    first, last = starts >> hierarchy.shift, (starts + sizes - 1) >> hierarchy.shift
    for lines in map(np.arange, first, last + 1):
        levels = np.empty(len(lines), np.uint8)
        look_up(lines, hierarchy.tags, hierarchy.shapes, levels)
        hierarchy.counts[levels.max()] += 1
