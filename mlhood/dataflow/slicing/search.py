"""The exhaustive search beside the analysis: every legal slicing, by predicted cycles.

With as many groups, smaller groups fit wherever larger ones do and keep more from one use to the next. So of all k2
(and k3) that cut the tiles into as many groups only the smallest is looked at, and nothing better is missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.fit import needs
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import Traffic, predict, predict_all
from mlhood.errors import SlicingError

_MOST = 2**25  # slicings side by side: some gigabytes of arrays


@dataclass(frozen=True)
class Found:
    """The best that there is.

    Args:
        slicing: Of all legal ones that with the fewest predicted cycles.
        traffic: What it loads.
        looked_at: How many legal ones were compared.
    """

    slicing: Slicing
    traffic: Traffic
    looked_at: int

    def behind(self, traffic: Traffic) -> float:
        """Return how many more cycles another slicing takes, as a part of the best one's."""
        return float(traffic.cycles) / float(self.traffic.cycles) - 1


def search(problem: Problem, caches: Caches) -> Found:
    """Return the best legal slicing of both orders.

    Raises:
        SlicingError: If none is legal, or there are too many.
    """
    found = [best for order in ORDERS if (best := _best(problem, order, caches)) is not None]
    if not found:
        raise SlicingError("no slicing fits into these caches", where=problem, got=caches)
    slicing = min(found, key=lambda one: one[1])[0]
    return Found(slicing, predict(problem, slicing, caches), sum(count for _, _, count in found))


def _best(problem: Problem, order: Order, caches: Caches) -> tuple[Slicing, float, int] | None:
    """Return an order's best slicing, its predicted cycles, and of how many."""
    passing, staying = counts(problem, order)
    _refuse_too_many(problem, max(problem.channels, passing, staying))
    channels = np.arange(1, problem.channels + 1)
    first, second, third = caches.rooms
    k1 = channels[needs(problem, order, channels, 1, 1)[0] <= first][:, None, None]
    k2, k3 = group_sizes(passing)[:, None], group_sizes(staying)
    _refuse_too_many(problem, len(k1) * len(k2) * len(k3))
    _, needs2, needs3 = needs(problem, order, k1, k2, k3)
    legal = (needs2 <= second) & (needs3 <= third)
    if not legal.any():
        return None
    cycles = np.where(legal, predict_all(problem, order, k1, k2, k3, caches).cycles, np.inf)
    a, b, c = np.unravel_index(int(np.argmin(cycles)), cycles.shape)
    slicing = Slicing(order, int(k1[a, 0, 0]), int(k2[b, 0]), int(k3[c]))
    return slicing, float(cycles[a, b, c]), int(legal.sum())


def _refuse_too_many(problem: Problem, count: int) -> None:
    if count > _MOST:
        raise SlicingError(
            "there are too many slicings to look at each", where=problem, expected=f"at most {_MOST:,}",
            got=f"{count:,}", todo="take a smaller convolution, or declare an L1, which bounds k1",
        )  # fmt: skip


def group_sizes(count: int) -> np.ndarray:
    """Return, for each number of groups that `count` tiles can be cut into, the smallest size of a group."""
    sizes = np.arange(1, count + 1)
    groups = -(-count // sizes)
    return sizes[np.flatnonzero(np.diff(groups, prepend=count + 1))]
