"""Checks of P4.4: what a slicing takes of each cache, and the largest one that fits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4 import reference
from mlhood.grading.projects.p4.probes import REFUSED
from mlhood.grading.projects.p4.reference import LEVELS, Triple
from mlhood.grading.projects.p4.spaces import PROBES

# Ferrari et al., 2023, section 3: 256 filters of 3 x 3 x 32, an output of 75 x 75, tiles of 16 windows and 8 filters
PAPER = ("IS", 32, 256 // 8, 75 * 75 // 16)
PAPER_SIZES = {"input": 16 * 9 * 4, "weight": 8 * 9 * 4, "output": 16 * 8 * 4}
PAPER_ROOMS = (0.9 * 2**15, 0.9 * 2**20, 0.9 * 2**22)


def _sizes(submission: Submission) -> dict[str, int]:
    """Bytes of one channel of an input and of a weight tile, and of an output tile; none twice another."""
    window, filters = (int(size) for size in submission.rng.permutation([6, 10, 14, 22])[:2])
    area = int(submission.rng.choice([1, 9, 25]))
    return {"input": window * area * 4, "weight": filters * area * 4, "output": window * filters * 4}


def _tiles(submission: Submission) -> Triple:
    k1, k2, k3 = (int(size) for size in submission.rng.permutation(np.arange(3, 30))[:3])
    return k1, k2, k3


def triple(found: object, what: str, given: str) -> Triple:
    """Three whole numbers, however they are held."""
    found = list(found) if isinstance(found, tuple) else found
    numbers = expect.array(found, (3,), what, given=given).tolist()
    whole = all(float(one).is_integer() for one in numbers)
    expect.true(whole, f"{what} are no whole numbers", got=str(numbers), given=given)
    k1, k2, k3 = (int(one) for one in numbers)
    return k1, k2, k3


def _level(submission: Submission, level: int, hint: str) -> None:
    """Compare what IS takes of a level."""
    for _ in range(3):
        tiles, sizes = _tiles(submission), _sizes(submission)
        given = f"IS, (k1, k2, k3) = {tiles}, sizes {sizes}"
        with expect.case(given):
            got = triple(submission.call("needs", "IS", *tiles, sizes), "what `needs` returns", given)
        want = reference.needs("IS", *tiles, sizes)
        expect.true(got[level] == want[level], f"{LEVELS[level]} needs other bytes", expected=f"{want[level]:,}",
                    got=f"{got[level]:,}", given=given, hint=hint)  # fmt: skip


@points(2)
def l1_holds_one_of_each(submission: Submission) -> None:
    """`needs` of L1: an input tile, a weight tile and an output tile."""
    _level(
        submission, 0, "k1 channels of an input tile and of a weight tile, and one output tile, which has no channels"
    )


@points(2)
def l2_holds_passing_tiles(submission: Submission) -> None:
    """`needs` of L2: the staying tile, and k2 passing ones with an output tile each."""
    _level(submission, 1, "IS: one input tile, and k2 times (weight tile + output tile)")


@points(2)
def l3_holds_staying_tiles(submission: Submission) -> None:
    """`needs` of L3: k3 staying tiles, k2 passing ones, and an output tile for each pair."""
    _level(submission, 2, "IS: k3 input tiles, k2 weight tiles, and k2 * k3 output tiles")


@points(2)
def orders_change_places(submission: Submission) -> None:
    """`needs` of "WS" is that of "IS" with the kinds of tiles exchanged."""
    for _ in range(3):
        tiles, sizes = _tiles(submission), _sizes(submission)
        exchanged = {"input": sizes["weight"], "weight": sizes["input"], "output": sizes["output"]}
        given = f"WS, (k1, k2, k3) = {tiles}, sizes {sizes}"
        hint = "in WS the weight tile stays, k2 counts input tiles and k3 weight tiles"
        with expect.case(given, hint):
            got = triple(submission.call("needs", "WS", *tiles, sizes), "what `needs` returns", given)
            # against the student's own numbers, so that a wrong level is not counted twice
            own = triple(submission.call("needs", "IS", *tiles, exchanged), "what `needs` returns", given)
        want = reference.needs("WS", *tiles, sizes)
        expect.true(got in (own, want), "the order WS needs other bytes", expected=f"{want}", got=f"{got}",
                    given=given, hint=hint)  # fmt: skip


def _asked(submission: Submission, *arguments: object) -> list[Any]:
    """What `largest` says, and what it says with a right `needs`: one of them at least."""
    answers, failures = [], []
    for name in (None, "needs"):
        try:
            answers.append(submission.call(PROBES + "refused", submission.value("largest"), name, *arguments))
        except expect.CheckFailed as failure:
            failures.append(failure)
    if not answers:
        raise failures[0]
    return answers


def _refused(answer: object) -> bool:
    return isinstance(answer, str) and answer == REFUSED


def _finds(submission: Submission, arguments: tuple, hint: str) -> None:
    order, channels, passing, staying, sizes, rooms = arguments
    given = (f"{order}, channels {channels}, passing {passing}, staying {staying}, sizes {sizes}, "
             f"rooms ({', '.join(f'{room:.10g}' for room in rooms)})")  # fmt: skip
    want = reference.largest(*arguments)
    with expect.case(given, hint):
        answers = [answer for answer in _asked(submission, *arguments) if not _refused(answer)]
        expect.true(bool(answers), "`largest` refuses what fits", expected=f"{want}", got="ValueError")
    found = [triple(answer, "what `largest` returns", given) for answer in answers]
    expect.true(want in found, "`largest` finds other tiles", expected=f"{want}", got=f"{found[0]}", given=given,
                hint=hint)  # fmt: skip


@points(4)
def tiles_are_halved_until_they_fit(submission: Submission) -> None:
    """`largest` starts with all there is, and halves k1, k2 and k3, one after the other, until its level fits."""
    hint = "k1 until L1 fits; with this k1, k2 until L2 fits; with both, k3 until L3 fits; // 2 each time"
    for order in ("IS", "WS", "IS", "WS"):
        _finds(submission, _telling(submission, order), hint)


def _telling(submission: Submission, order: str) -> tuple:
    """What `largest` is asked, such that the other order comes to other tiles."""
    for _ in range(20):
        asked = _drawn(submission, order)
        if not _same_in_both_orders(asked):
            return asked
    return _drawn(submission, order)


def _drawn(submission: Submission, order: str) -> tuple:
    rng, sizes, target = submission.rng, _sizes(submission), _tiles(submission)
    needed = [reference.needs(order, *tiles, sizes)[level] for level, tiles in
              enumerate(((target[0], 1, 1), (*target[:2], 1), target))]  # fmt: skip
    rooms = tuple(float(bytes_) + 2 for bytes_ in needed)
    most = [int(size) * int(rng.integers(2, 9)) + int(rng.integers(0, 4)) for size in target]
    return order, *most, sizes, rooms


def _same_in_both_orders(asked: tuple) -> bool:
    try:
        return reference.largest("IS", *asked[1:]) == reference.largest("WS", *asked[1:])
    except ValueError:
        return False


@points(2)
def the_papers_example_comes_out(submission: Submission) -> None:
    """`largest` finds (32, 32, 87) for the example of the paper, and takes all there is where it fits."""
    hint = "nothing has to be halved but k3: 351, 175, 87"
    _finds(submission, (*PAPER, PAPER_SIZES, PAPER_ROOMS), hint)
    sizes, most = _sizes(submission), _tiles(submission)
    _finds(submission, ("WS", *most, sizes, (math.inf, 1e12, math.inf)), "what fits is not halved at all")


@points(2)
def what_never_fits_is_an_error(submission: Submission) -> None:
    """`largest` raises ValueError where not even one tile fits."""
    sizes = _sizes(submission)
    for level, k1 in enumerate((1, 8, 8)):  # L1 limits k1; where it does not, all 8 channels stay
        rooms = [1e9] * 3
        rooms[level] = reference.needs("IS", k1, 1, 1, sizes)[level] - 1.0
        given = f"IS, channels 8, passing 4, staying 6, sizes {sizes}, rooms {tuple(map(int, rooms))}"
        hint = f"halving 1 gives 0: raise ValueError when {LEVELS[level]} does not hold even one"
        with expect.case(given, hint):
            answers = _asked(submission, "IS", 8, 4, 6, sizes, tuple(rooms))
        expect.true(any(map(_refused, answers)), "`largest` finds tiles where none fit", expected="ValueError",
                    got=answers[0], given=given, hint=hint)  # fmt: skip


ANALYSIS_STAND_IN = """
from mlhood.grading.projects.p4.reference import largest, needs
"""


TASKS = (
    Task(
        "P4.4",
        "The slicing analysis",
        checks=(
            l1_holds_one_of_each,
            l2_holds_passing_tiles,
            l3_holds_staying_tiles,
            orders_change_places,
            tiles_are_halved_until_they_fit,
            the_papers_example_comes_out,
            what_never_fits_is_an_error,
        ),
        stand_in=ANALYSIS_STAND_IN,
        forbidden=("mlhood.dataflow.slicing.fit", "mlhood.dataflow.slicing.analysis"),
    ),
)
