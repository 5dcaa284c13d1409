"""Checks of P4.7, the open task: slicings whose simulated traffic is less than that of the analysis.

The grader draws layers and caches, asks for a slicing of each, and simulates all of it itself. The figure is the
traffic relative to that of the analysis, as the geometric mean over the layers; the course's own search is the top.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from mlhood.dataflow.cache.cost import simulated_traffic
from mlhood.dataflow.slicing.analysis import analyse, group_sizes
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Order, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import predict_all
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import SLICINGS
from mlhood.grading.projects.p4.nests import PROBES
from mlhood.grading.variants.parameter import Parameter

# whose choice the order is: that of `choose`, that of who calls it, or there is only one
ORDER_OF = Parameter("order_of", ("choose", "the caller", "WS", "IS"))

LAYERS = 6
SIMULATED = 12  # slicings of each order that are simulated
BEATEN = 0.99  # of the traffic of the analysis: what is above is no better
TOLERANCE = 0.03  # of the gain of the course's own search, in the logarithm


@dataclass(frozen=True)
class Figures:
    """Traffic relative to that of the analysis, as geometric means over the layers.

    Args:
        reached: With the student's slicings.
        course: With those of the course's own search.
        worst: The layer whose traffic is the most above the course's, in words.
    """

    reached: float
    course: float
    worst: str

    @property
    def gain(self) -> float:
        """The share of the course's gain, in the logarithm."""
        return math.log(self.reached) / math.log(self.course)


def draw_case(submission: Submission) -> tuple[Problem, Caches]:
    """Draw a layer and caches, of sizes that are simulated in a fraction of a second."""
    rng = submission.rng
    channels, filters = (int(size) for size in rng.permutation([24, 32, 48, 64, 96, 128])[:2])
    kernel, size = int(rng.choice([1, 3])), int(rng.integers(10, 24))
    tile = int(rng.choice([8, 12, 14, 16])), int(rng.choice([4, 8, 16]))
    first = int(rng.choice([4, 8, 16])) << 10
    second = first * int(rng.choice([4, 8]))
    third = second * int(rng.choice([2, 4, 8]))
    return Problem(filters, channels, (kernel, kernel), (size, size + 2), *tile), Caches((first, second, third))


def _orders(submission: Submission) -> list[Order | None]:
    """Return the order of each layer, None where the student's `choose` chooses it."""
    whose = submission.parameters.order_of
    if whose == "the caller":
        return [ORDERS[i % len(ORDERS)] for i in range(LAYERS)]
    return [next((order for order in ORDERS if order == whose), None)] * LAYERS


def _chosen(submission: Submission, problem: Problem, caches: Caches, order: Order | None) -> Slicing:
    """Return the slicing that the student's `choose` returns, in an order that may be given."""
    asked = [order] if submission.parameters.order_of == "the caller" else []
    given = ", ".join(map(str, [problem, caches, *asked]))
    with expect.case(given, "check what you return against the counts of tiles in that order"):
        answer = submission.probe(PROBES + "chosen", "choose", asdict(problem), asdict(caches), *asked)
        answer = expect.sequence(answer, tuple, "what `choose` returns")
        expect.equal(len(answer), 3 if order else 4, "the wrong number of items in what `choose` returns")
        taken = order or answer[0]
        expect.true(taken in ORDERS, "`choose` returns no order", expected="IS or WS", got=taken)
        tiles = tuple(expect.integer(size, "the tiles that `choose` returns") for size in answer[-3:])
        most = (problem.channels, *counts(problem, taken))
        exist = all(1 <= size <= limit for size, limit in zip(tiles, most, strict=True))
        expect.true(exist, "`choose` returns more tiles than there are", expected=f"from 1 to {most}", got=f"{tiles}")
    return Slicing(taken, *tiles)


def _figures(submission: Submission) -> Figures:
    """Simulate the student's slicings, those of the analysis and those of the course's search, on drawn layers."""

    def simulate() -> Figures:
        cases = [draw_case(submission) for _ in range(LAYERS)]
        orders = _orders(submission)
        # before the long part: a wrong answer is reported at once
        chosen = [_chosen(submission, *case, order) for case, order in zip(cases, orders, strict=True)]
        reached, course = [], []
        for (problem, caches), order, slicing in zip(cases, orders, chosen, strict=True):
            analysis = analyse(problem, caches)
            compared = analysis.candidates[order][0] if order else analysis.slicing
            analysed = simulated_traffic(problem, compared, caches)
            reached.append(simulated_traffic(problem, slicing, caches) / analysed)
            course.append(_course_traffic(problem, caches, order) / analysed)
        last = max(range(LAYERS), key=lambda i: reached[i] / course[i])
        worst = f"{cases[last][0]}, {cases[last][1]}: {chosen[last]} has {reached[last]:.3f} of the analysis's traffic"
        return Figures(_geometric_mean(reached), _geometric_mean(course), worst)

    return submission.once("figures", simulate)


def _course_traffic(problem: Problem, caches: Caches, order: Order | None) -> float:
    """Return the traffic with the course's search: the larger one of those with all k1 and with the notebook's.

    One is better for some layers, and the other for others: neither should cost points.
    """
    own = (Slicing(*searched(problem, caches, order, every_k1=every)) for every in (True, False))
    return max(simulated_traffic(problem, slicing, caches) for slicing in own)


def searched(
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


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _check_traffic(submission: Submission, limit: float, what: str, hint: str) -> None:
    """Fail unless the slicings have at most this much of the analysis's traffic."""
    figures = _figures(submission)
    expected = f"at most {limit:.3f} of the analysis's traffic, as the geometric mean over {LAYERS} layers"
    right = figures.reached <= limit
    expect.true(right, what, expected=expected, got=f"{figures.reached:.3f}", given=figures.worst, hint=hint)


def _check_share(submission: Submission, share: float) -> None:
    """Fail unless the slicings gain at least this share of what the course's own search gains."""
    figures = _figures(submission)
    what = f"`choose` gains too little over the analysis: {figures.gain:.0%} of what the course's search gains"
    hint = "the prediction is cheap and narrows the choice, the simulation decides; what does not fit is allowed, too"
    _check_traffic(submission, figures.course**share, what, hint)


@points(2)
def slicings_are_possible(submission: Submission) -> None:
    """`choose` returns {% if order_of == "choose" %}an order and {% endif %}three numbers that the layer has."""
    figures = _figures(submission)
    submission.reach(figures.reached, course=figures.course, smaller_is_better=True)


@points(3)
def traffic_is_less_than_the_analysis(submission: Submission) -> None:
    """The slicings of `choose` have less simulated traffic than those of the analysis, by at least one percent."""
    both = " of both orders" if submission.parameters.order_of == "choose" else ""
    hint = f"predict all triples{both} first, and simulate the few with the least predicted traffic"
    what = "the slicings of `choose` have no less traffic than those of the analysis"
    _check_traffic(submission, BEATEN, what, hint)


@points(3)
def half_of_the_gain_is_reached(submission: Submission) -> None:
    """The slicings of `choose` gain at least half of what the course's own search gains over the analysis."""
    _check_share(submission, 0.5)


@points(3)
def courses_search_is_reached(submission: Submission) -> None:
    """The slicings of `choose` gain as much as those of the course's own search."""
    _check_share(submission, 1 - TOLERANCE)


P4_7 = Task(
    "P4.7",
    "Beat the analysis",
    seconds=60,
    libraries=SLICINGS,
    minutes=60,
    builds_on=("P4.3", "P4.4"),
    leaderboard="traffic relative to the analysis",
    varies=(ORDER_OF,),
)
