"""Exhaustive search: the legal slicing with the fewest predicted cycles, to compare the analysis with.

Of group sizes that give the same number of groups, the smaller fits wherever a larger one does, and its reuse distances
are shorter. So for each number of groups only the smallest k2 (and k3) is a candidate, and the optimum is not missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.fit import needs
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import Traffic, predict, predict_all
from mlhood.errors import SlicingError

_MAX_CANDIDATES = 2**25  # in one array: some gigabytes


@dataclass(frozen=True)
class Optimum:
    """The best legal slicing.

    Args:
        slicing: The one with the fewest predicted cycles.
        traffic: Its predicted traffic.
        compared: Number of legal candidates.
    """

    slicing: Slicing
    traffic: Traffic
    compared: int

    def excess(self, traffic: Traffic) -> float:
        """Return the relative excess of another slicing's predicted cycles."""
        return float(traffic.cycles) / float(self.traffic.cycles) - 1


def search(problem: Problem, caches: Caches) -> Optimum:
    """Return the best legal slicing of both orders.

    Raises:
        SlicingError: If none is legal, or there are too many.
    """
    optima = [best for order in ORDERS if (best := _best(problem, order, caches)) is not None]
    if not optima:
        raise SlicingError("no slicing fits into these caches", where=problem, got=caches)
    slicing = min(optima, key=lambda best: best[1])[0]
    return Optimum(slicing, predict(problem, slicing, caches), sum(count for _, _, count in optima))


def _best(problem: Problem, order: Order, caches: Caches) -> tuple[Slicing, float, int] | None:
    """Return an order's best slicing, its predicted cycles, and the number of legal candidates."""
    streamed, stationary = counts(problem, order)
    _check_count(problem, max(problem.channels, streamed, stationary))
    channels = np.arange(1, problem.channels + 1)
    first, second, third = caches.rooms
    k1 = channels[needs(problem, order, channels, 1, 1)[0] <= first][:, None, None]
    k2, k3 = group_sizes(streamed)[:, None], group_sizes(stationary)
    _check_count(problem, len(k1) * len(k2) * len(k3))
    _, needs2, needs3 = needs(problem, order, k1, k2, k3)
    legal = (needs2 <= second) & (needs3 <= third)
    if not legal.any():
        return None
    cycles = np.where(legal, predict_all(problem, order, k1, k2, k3, caches).cycles, np.inf)
    a, b, c = np.unravel_index(int(np.argmin(cycles)), cycles.shape)
    slicing = Slicing(order, int(k1[a, 0, 0]), int(k2[b, 0]), int(k3[c]))
    return slicing, float(cycles[a, b, c]), int(legal.sum())


def _check_count(problem: Problem, count: int) -> None:
    if count > _MAX_CANDIDATES:
        todo = "take a smaller convolution, or declare an L1, which bounds k1"
        expected = f"at most {_MAX_CANDIDATES:,}"
        raise SlicingError("too many slicings to search", where=problem, expected=expected, got=f"{count:,}", todo=todo)


def group_sizes(count: int) -> np.ndarray:
    """Return the smallest group size for each number of groups that `count` tiles can be divided into."""
    sizes = np.arange(1, count + 1)
    groups = -(-count // sizes)
    return sizes[np.flatnonzero(np.diff(groups, prepend=count + 1))]
