"""The slicing analysis: from a convolution and the caches to (k1, k2, k3) and the order.

1. k1 starts with all channels, k2 and k3 with all full tiles.
2. Each is halved until its level holds what it must: L1 for k1, then L2 for k2, then L3 for k3.
3. The order whose loads are predicted to take fewer cycles is chosen; IS if both take as many.

(Ferrari et al., 2023, section 3.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlhood.dataflow.slicing.caches import LEVELS, Caches
from mlhood.dataflow.slicing.fit import needs
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing
from mlhood.dataflow.slicing.traffic import Traffic, predict
from mlhood.errors import SlicingError


@dataclass(frozen=True)
class Analysis:
    """The result of the analysis.

    Args:
        problem: What is sliced.
        caches: For which caches.
        slicing: The choice.
        candidates: The slicing and the predicted traffic of each order.
    """

    problem: Problem
    caches: Caches
    slicing: Slicing
    candidates: dict[Order, tuple[Slicing, Traffic]]

    @property
    def traffic(self) -> Traffic:
        """The predicted traffic of the choice."""
        return self.candidates[self.slicing.order][1]

    @property
    def gap(self) -> float:
        """Relative excess of the other order's predicted cycles over the choice's."""
        cycles = sorted(float(traffic.cycles) for _, traffic in self.candidates.values())
        return cycles[1] / cycles[0] - 1


def analyse(problem: Problem, caches: Caches) -> Analysis:
    """Choose how to slice a convolution.

    Raises:
        SlicingError: If the smallest tiles do not fit.
    """
    candidates: dict[Order, tuple[Slicing, Traffic]] = {}
    for order in ORDERS:
        slicing = largest(problem, order, caches)
        candidates[order] = slicing, predict(problem, slicing, caches)
    best = min(ORDERS, key=lambda order: candidates[order][1].cycles)
    return Analysis(problem, caches, candidates[best][0], candidates)


def largest(problem: Problem, order: Order, caches: Caches) -> Slicing:
    """Return the largest slicing of an order that halving reaches.

    Raises:
        SlicingError: If the smallest tiles do not fit.
    """
    first, second, third = caches.rooms
    streamed, stationary = _full_tiles(problem, order)
    k1 = _halve(problem.channels, lambda k: needs(problem, order, k, 1, 1)[0] <= first, LEVELS[0], problem, caches)
    k2 = _halve(streamed, lambda k: needs(problem, order, k1, k, 1)[1] <= second, LEVELS[1], problem, caches)
    k3 = _halve(stationary, lambda k: needs(problem, order, k1, k2, k)[2] <= third, LEVELS[2], problem, caches)
    return Slicing(order, k1, k2, k3)


def _full_tiles(problem: Problem, order: Order) -> tuple[int, int]:
    """Return the number of full streamed and stationary tiles, at least one of each."""
    inputs, weights = problem.windows // problem.window, problem.filters // problem.filter_tile
    if problem.rows is not None:
        inputs = problem.input_tiles
    streamed, stationary = (weights, inputs) if order == "IS" else (inputs, weights)
    return max(1, streamed), max(1, stationary)


def _halve(start: int, fits: Callable[[int], bool], level: str, problem: Problem, caches: Caches) -> int:
    size = start
    while size and not fits(size):
        size //= 2
    if not size:
        todo = "take a smaller register tile (window, filter_tile), or declare larger caches"
        raise SlicingError(f"not even the smallest tiles fit into {level}", where=problem, got=caches, todo=todo)
    return size
