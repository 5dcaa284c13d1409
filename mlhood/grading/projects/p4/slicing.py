"""Checks of P4.4: how many bytes a slicing needs in each cache, and the largest slicing that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.probes import patched_globals
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.projects.p4.nests import PROBES
from mlhood.grading.projects.p4.probes import VALUE_ERROR, largest_or_error
from mlhood.grading.variants.parameter import Parameter

# the keys of the dictionary that `needs` returns; a tuple if there are none
NEEDS_KEYS = Parameter("needs_keys", ((), ("L1", "L2", "L3"), (1, 2, 3), ("first", "second", "third")))
SEARCH = Parameter("search", ("halves", "halves the largest power of two", "takes one"))

# Ferrari et al., 2023, section 3: 256 filters of 3 x 3 x 32, an output of 75 x 75, tiles of 16 windows and 8 filters
PAPER = ("IS", 32, 256 // 8, 75 * 75 // 16)
PAPER_SIZES = {"input": 16 * 9 * 4, "weight": 8 * 9 * 4, "output": 16 * 8 * 4}
PAPER_ROOMS = (0.9 * 2**15, 0.9 * 2**20, 0.9 * 2**22)


def _draw_sizes(submission: Submission) -> dict[str, int]:
    """Draw the bytes of one channel of an input and of a weight tile, and of an output tile; none twice another."""
    window, filters = (int(size) for size in submission.rng.permutation([6, 10, 14, 22])[:2])
    area = int(submission.rng.choice([1, 9, 25]))
    return {"input": window * area * 4, "weight": filters * area * 4, "output": window * filters * 4}


def _draw_tiles(submission: Submission) -> list[int]:
    return submission.rng.permutation(np.arange(3, 30))[:3].tolist()


def _slicings(submission: Submission, order: str = "IS") -> Iterator[Arguments]:
    for _ in range(3):
        yield order, *_draw_tiles(submission), _draw_sizes(submission)
    yield order, 1, 1, 1, _draw_sizes(submission)


def _of_level(level: int) -> Callable[[Any], Any]:
    """Return a function that returns the key, or index, of what `needs` returns for a level."""
    return lambda parameters: (parameters.needs_keys or range(3))[level]


@compared(
    1,
    "needs",
    key=_of_level(0),
    hint="one call of the microkernel touches a tile of each of the three kinds; which of them have channels?",
)
def l1_holds_one_of_each(submission: Submission) -> Iterator[Arguments]:
    """`needs` for L1: one input tile, one weight tile and one output tile."""
    return _slicings(submission)


@compared(
    1,
    "needs",
    key=_of_level(1),
    hint="go through the innermost loop, and list every tile that it touches: the sums, too",
)
def l2_holds_passing_tiles(submission: Submission) -> Iterator[Arguments]:
    """`needs` for L2: the stationary tile, and k2 streamed tiles with one output tile each."""
    return _slicings(submission)


@compared(
    1,
    "needs",
    key=_of_level(2),
    hint="go through the two innermost loops, and list every tile once: each pair of tiles has its own sums",
)
def l3_holds_staying_tiles(submission: Submission) -> Iterator[Arguments]:
    """`needs` for L3: k3 stationary tiles, k2 streamed tiles, and one output tile for each pair."""
    return _slicings(submission)


def _as_if_swapped(submission: Submission, needed: Any, order: str, k1: int, k2: int, k3: int, sizes: dict) -> Any:
    """What `needs` returns for IS if input and weight tiles are swapped: a wrong level does not count twice."""
    swapped = {"input": sizes["weight"], "weight": sizes["input"], "output": sizes["output"]}
    return submission.call("needs", "IS", k1, k2, k3, swapped)


@compared(
    2,
    "needs",
    own=_as_if_swapped,
    hint="which kind of tile does k2 count in WS, and which does k3 count?",
)
def orders_change_places(submission: Submission) -> Iterator[Arguments]:
    """`needs` for "WS" is `needs` for "IS" with input and weight tiles swapped."""
    return _slicings(submission, "WS")


def _call_largest(submission: Submission, *arguments: Any) -> Any:
    """Return the result of `largest`, or VALUE_ERROR if it raises that."""
    return submission.probe(PROBES + "largest_or_error", "largest", *arguments)


def _by_own_needs(submission: Submission, result: Any, *arguments: Any) -> Any:
    """What the course's `largest` returns with the submission's `needs`: an error in that costs its own points only."""
    find = getattr(submission.context.solution, "function", None)
    if find is None:  # in the student version, there are only results
        return None
    largest = find("largest")
    nonsense = suppress(expect.CheckFailed, TypeError, LookupError)
    with nonsense, patched_globals(largest, needs=partial(submission.call, "needs")):
        return largest_or_error(largest, *arguments)
    return None


def _needed(submission: Submission, order: str, *arguments: Any) -> list[int]:
    """Return the right bytes that L1, L2 and L3 have to hold."""
    needed = submission.solution("needs", order, *arguments)
    return list(needed.values() if isinstance(needed, dict) else needed)


def _draw_case(submission: Submission, order: str, exact: bool = False) -> Arguments:
    """Draw arguments of `largest` for which something fits into each level, and, if `exact`, fills it.

    What is available is drawn level by level: between what one tile needs (or three, of which two are left if it is one
    byte less), and what all of them do. In the other order, the same tiles do not fit.
    """
    sizes, most = _draw_sizes(submission), (submission.rng.integers(4, 120, 3)).tolist()
    rooms, tiles = [math.inf] * 3, [1, 1, 1]
    for level in range(3):
        least, all_of_them = (
            _needed(submission, order, *tiles[:level], size, *[1] * (2 - level), sizes)[level]
            for size in (3 if exact else 1, most[level])
        )
        rooms[level] = float(round(math.exp(submission.rng.uniform(math.log(least), math.log(all_of_them)))))
        reached = *most[: level + 1], *[1] * (2 - level)
        tiles = list(submission.solution("largest", order, *reached, sizes, tuple(rooms)))
        if exact:
            rooms[level] = float(_needed(submission, order, *tiles, sizes)[level])
    other = ORDERS[1 - ORDERS.index(order)]
    needed = [_needed(submission, other, *tiles[: level + 1], *[1] * (2 - level), sizes)[level] for level in range(3)]
    if all(need <= room for need, room in zip(needed, rooms, strict=True)):
        return _draw_case(submission, order, exact)
    return order, *most, sizes, tuple(rooms)


SEARCH_RULE = """{{ {"halves": "halving rounds down", "takes one": "each number is tried, from the top"}.get(search, \
"each starts with the largest power of two that is not more") }}"""


@compared(
    2,
    "largest",
    call=_call_largest,
    own=_by_own_needs,
    hint="one level after another: what L2 has to hold depends on the k1 that L1 left; " + SEARCH_RULE,
)
def tiles_are_halved_until_they_fit(submission: Submission) -> Iterator[Arguments]:
    """`largest` starts with {% if "power" in search %}powers of two{% else %}all there are{% endif %} and {{ \
    "reduces" if "one" in search else "halves" }} k1, k2 and k3, one after another, until their level fits.
    """
    for order in 3 * ORDERS:
        yield _draw_case(submission, order)


@compared(
    2,
    "largest",
    call=_call_largest,
    own=_by_own_needs,
    hint="compare what is needed with what is available once more: when does it not fit?",
)
def an_exact_fit_fits(submission: Submission) -> Iterator[Arguments]:
    """`largest` keeps what needs exactly the bytes that are available, and nothing that needs one more."""
    for order in ORDERS:
        *arguments, rooms = _draw_case(submission, order, exact=True)
        yield *arguments, rooms
        for level in range(3):
            yield *arguments, tuple(room - (i == level) for i, room in enumerate(rooms))


@compared(
    1,
    "largest",
    call=_call_largest,
    own=_by_own_needs,
    hint="print what each level needs at the start, and go on from there, level by level; stop at the first number "
    "that fits",
)
def the_papers_example_comes_out(submission: Submission) -> Iterator[Arguments]:
    """`largest` returns {{ "(32, 32, 87)" if search == "halves" else "the right tiles" }} for the paper's example, \
and {{ "reduces" if "one" in search else "halves" }} nothing if everything fits.
    """
    yield *PAPER, PAPER_SIZES, PAPER_ROOMS
    yield "WS", *_draw_tiles(submission), _draw_sizes(submission), (math.inf, 1e12, math.inf)


@points(1)
def what_never_fits_is_an_error(submission: Submission) -> None:
    """`largest` raises ValueError if not even one tile fits."""
    step = "1 - 1" if submission.parameters.search == "takes one" else "1 // 2"
    for level in (0, 1, 2, None):
        rooms = tuple(1.0 if i == level else 1e12 for i in range(3))
        arguments = "IS", *_draw_tiles(submission), _draw_sizes(submission), rooms
        with expect.case(expect.format_call("largest", arguments, {}), f"{step} is 0, and no tile at all is no answer"):
            answer = _call_largest(submission, *arguments)
            refused = isinstance(answer, str) and answer == VALUE_ERROR
            what, expected = "`largest` returns tiles that do not fit", "ValueError"
            expect.true(refused or level is None, what, expected=expected)
            expect.true(not refused or level is not None, "`largest` rejects a case that fits", got=expected)


P4_4 = Task(
    "P4.4",
    "The slicing analysis",
    varies=(NEEDS_KEYS, SEARCH),
    seconds=20,
    minutes=40,
    builds_on=("P4.2",),
    libraries=NESTS,
)
