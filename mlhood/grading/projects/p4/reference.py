"""The search of P4.7 that its steps are measured by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.dataflow.cache.cost import simulated_traffic
from mlhood.dataflow.slicing.analysis import group_sizes
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import predict_all

SIMULATED = 12  # slicings of each order that are simulated


def choose(
    problem: Problem, caches: Caches, order: Order | None = None, *, every_k1: bool = True
) -> tuple[Order, int, int, int]:
    """Return the order, k1, k2 and k3 with the least simulated traffic, of those with the least predicted traffic.

    If an order is given, there is no other.

    The prediction is for caches that are filled completely. Of group sizes that give as many groups, only the smallest
    is a candidate (see `slicing.analysis`); of k1, too, unless `every_k1`.
    """
    full = replace(caches, fill=1.0)
    orders = (order,) if order else ORDERS
    slicings = [slicing for order in orders for slicing in _promising(problem, order, full, every_k1)]
    best = min(slicings, key=lambda slicing: simulated_traffic(problem, slicing, caches))
    return best.order, *best.tiles


def _promising(problem: Problem, order: Order, caches: Caches, every_k1: bool) -> list[Slicing]:
    """Return the slicings of an order with the least predicted traffic, legal or not."""
    streamed, stationary = counts(problem, order)
    first = np.arange(1, problem.channels + 1) if every_k1 else group_sizes(problem.channels)
    axes = (first, group_sizes(streamed), group_sizes(stationary))
    k1, k2, k3 = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    predicted = predict_all(problem, order, k1, k2, k3, caches)
    served = (predicted.l2, predicted.l3, predicted.memory)
    cycles = sum(latency * lines for latency, lines in zip(caches.latencies[1:], served, strict=True))
    best = np.argsort(cycles, kind="stable")[:SIMULATED]
    return [Slicing(order, int(k1[i]), int(k2[i]), int(k3[i])) for i in best]
