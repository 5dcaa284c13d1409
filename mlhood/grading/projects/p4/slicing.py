"""Checks of P4.4: how many bytes a slicing needs in each cache, and the largest slicing that fits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p4 import reference
from mlhood.grading.projects.p4.libraries import NESTS
from mlhood.grading.projects.p4.orders import PROBES
from mlhood.grading.projects.p4.probes import VALUE_ERROR
from mlhood.grading.projects.p4.reference import LEVELS, Triple
from mlhood.grading.variants.parameter import Parameter

# the kind of tile of which each level holds one more, so that the next one is loaded while others are in use
NEXT_TILE = Parameter("next_tile", ("", "streamed", "stationary", "output"))
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


def _draw_tiles(submission: Submission) -> Triple:
    k1, k2, k3 = (int(size) for size in submission.rng.permutation(np.arange(3, 30))[:3])
    return k1, k2, k3


def integer_triple(value: object, what: str, given: str) -> Triple:
    """Return a tuple of three integers; fail on everything else."""
    value = expect.sequence(value, tuple, what, given=given)
    expect.equal(len(value), 3, f"the wrong number of items in {what}", given=given)
    k1, k2, k3 = (expect.integer(number, what, given=given) for number in value)
    return k1, k2, k3


def _next(submission: Submission) -> dict[str, Any]:
    """Return the option of the reference's `needs`."""
    return {"next_tile": submission.parameters.next_tile}


def _bytes(submission: Submission, given: str, *arguments: object) -> Triple:
    """Return the student's `needs`, as this variant of the course returns it."""
    answer, what, keys = submission.call("needs", *arguments), "what `needs` returns", submission.parameters.needs_keys
    if not keys:
        return integer_triple(answer, what, given)
    report = expect.mapping(answer, keys, what, given=given)
    k1, k2, k3 = (expect.integer(report[key], f"{what} for {key!r}", given=given) for key in keys)
    return k1, k2, k3


def _check_level(submission: Submission, level: int, hint: str) -> None:
    """Compare the bytes that IS needs of a level."""
    for _ in range(3):
        tiles, sizes = _draw_tiles(submission), _draw_sizes(submission)
        given = f"IS, (k1, k2, k3) = {tiles}, sizes {sizes}"
        with expect.case(given):
            got = _bytes(submission, given, "IS", *tiles, sizes)[level]
        want = reference.needs("IS", *tiles, sizes, **_next(submission))[level]
        if got == reference.needs("IS", *tiles, sizes)[level] != want:
            hint = f"the next {submission.parameters.next_tile} tile is missing: each level holds one more"
        what = f"`needs` returns the wrong number of bytes for {LEVELS[level]}"
        expect.true(got == want, what, expected=f"{want:,}", got=f"{got:,}", given=given, hint=hint)


@points(1)
def l1_holds_one_of_each(submission: Submission) -> None:
    """`needs` for L1: one input tile, one weight tile and one output tile."""
    hint = "one call of the microkernel touches a tile of each of the three kinds; which of them have channels?"
    _check_level(submission, 0, hint)


@points(1)
def l2_holds_passing_tiles(submission: Submission) -> None:
    """`needs` for L2: the stationary tile, and k2 streamed tiles with one output tile each."""
    _check_level(submission, 1, "go through the innermost loop, and list every tile that it touches: the sums, too")


@points(1)
def l3_holds_staying_tiles(submission: Submission) -> None:
    """`needs` for L3: k3 stationary tiles, k2 streamed tiles, and one output tile for each pair."""
    _check_level(
        submission,
        2,
        "go through the two innermost loops, and list every tile once: each pair of tiles has sums of its own",
    )


@points(2)
def orders_change_places(submission: Submission) -> None:
    """`needs` for "WS" is `needs` for "IS" with input and weight tiles swapped."""
    for _ in range(3):
        tiles, sizes = _draw_tiles(submission), _draw_sizes(submission)
        swapped = {"input": sizes["weight"], "weight": sizes["input"], "output": sizes["output"]}
        given = f"WS, (k1, k2, k3) = {tiles}, sizes {sizes}"
        with expect.case(given, "which kind of tile does k2 count in WS, and which does k3 count?"):
            got = _bytes(submission, given, "WS", *tiles, sizes)
            # compared with the student's own result for IS as well, so that a wrong level does not count twice
            own = _bytes(submission, given, "IS", *tiles, swapped)
            want = reference.needs("WS", *tiles, sizes, **_next(submission))
            expect.true(
                got in (own, want),
                "`needs` returns the wrong numbers of bytes in the order WS",
                expected=f"{want}",
                got=f"{got}",
            )


def _largest(submission: Submission, *arguments: object) -> list[Any]:
    """Return the student's `largest` and the one with the reference's `needs`; at least one of them answers."""
    answers, failures = [], []
    options = {**_next(submission), "keys": submission.parameters.needs_keys}
    for given in (None, options):
        try:
            function = submission.value("largest")
            answers.append(submission.call(PROBES + "result_or_value_error", function, given, *arguments))
        except expect.CheckFailed as failure:
            failures.append(failure)
    if not answers:
        raise failures[0]
    return answers


def _is_value_error(answer: object) -> bool:
    return isinstance(answer, str) and answer == VALUE_ERROR


def _check_largest(submission: Submission, arguments: tuple, hint: str) -> None:
    order, channels, passing, staying, sizes, rooms = arguments
    shown = ", ".join(f"{capacity:.10g}" for capacity in rooms)
    given = f"{order}, channels {channels}, streamed {passing}, stationary {staying}, sizes {sizes}, rooms ({shown})"
    want = reference.largest(*arguments, **_next(submission), search=submission.parameters.search)
    with expect.case(given, hint):
        answers = [answer for answer in _largest(submission, *arguments) if not _is_value_error(answer)]
        expect.true(bool(answers), "`largest` rejects a case that fits", expected=f"{want}", got="ValueError")
        results = [integer_triple(answer, "what `largest` returns", given) for answer in answers]
        expect.true(want in results, "`largest` returns the wrong tiles", expected=f"{want}", got=f"{results[0]}")


@points(2)
def tiles_are_halved_until_they_fit(submission: Submission) -> None:
    """`largest` starts with {% if "power" in search %}powers of two{% else %}all there are{% endif %} and {{ \
    "reduces" if "one" in search else "halves" }} k1, k2 and k3, one after another, until their level fits.
    """
    end = {"halves": "halving rounds down", "takes one": "each number is tried, from the top"}
    rule = end.get(submission.parameters.search, "each starts with the largest power of two that is not more")
    hint = f"one level after another: what L2 has to hold depends on the k1 that L1 left; {rule}"
    for order in ("IS", "WS", "IS", "WS"):
        _check_largest(submission, _draw_distinctive_case(submission, order), hint)


@points(2)
def an_exact_fit_fits(submission: Submission) -> None:
    """`largest` keeps what needs exactly the bytes that are available, and nothing that needs one more."""
    hint = "compare what is needed with what is available once more: when does it not fit?"
    for order in ("IS", "WS"):
        *arguments, rooms = _draw_case(submission, order, exact=True)
        _check_largest(submission, (*arguments, rooms), hint)
        for level in range(len(rooms)):
            short = tuple(room - (i == level) for i, room in enumerate(rooms))
            _check_largest(submission, (*arguments, short), hint)


def _draw_distinctive_case(submission: Submission, order: str) -> tuple:
    """Draw arguments of `largest` for which something fits, and the other order gives another result."""
    for _ in range(100):
        arguments = _draw_case(submission, order)
        own, other = (_answer(submission, (name, *arguments[1:])) for name in (order, "WS" if order == "IS" else "IS"))
        if own and own != other:
            return arguments
    return _draw_case(submission, order, exact=True)


def _answer(submission: Submission, arguments: tuple) -> Triple | None:
    """Return the right tiles; None if nothing fits: where k1 stays above what was drawn, less is left for k2."""
    try:
        return reference.largest(*arguments, **_next(submission), search=submission.parameters.search)
    except ValueError:
        return None


def _draw_case(submission: Submission, order: str, exact: bool = False) -> tuple:
    """Draw arguments of `largest` for which a level has room for its tiles, but not for twice as many."""
    rng, sizes, target = submission.rng, _draw_sizes(submission), _draw_tiles(submission)
    rooms = []
    for level in range(3):
        k1, k2, k3 = tiles = [*target[: level + 1], 1, 1][:3]
        needed = reference.needs(order, k1, k2, k3, sizes, **_next(submission))[level]
        tiles[level] *= 2
        k1, k2, k3 = tiles
        twice = reference.needs(order, k1, k2, k3, sizes, **_next(submission))[level]
        rooms.append(float(needed if exact else rng.integers(needed, twice)))
    factors = (2 ** int(exponent) for exponent in rng.integers(1, 4, 3))
    most = [int(size) * factor + int(rng.integers(0, factor)) for size, factor in zip(target, factors, strict=True)]
    return order, *most, sizes, tuple(rooms)


@points(1)
def the_papers_example_comes_out(submission: Submission) -> None:
    """`largest` returns {{ "(32, 32, 87)" if not next_tile else "the right tiles" }} for the paper's example, and {{ \
    "reduces" if "one" in search else "halves" }} nothing if everything fits.
    """
    halved = submission.parameters.search == "halves" and not submission.parameters.next_tile
    few = ": only one of the three has to be halved, twice" if halved else ", and go on from there, level by level"
    _check_largest(
        submission,
        (*PAPER, PAPER_SIZES, PAPER_ROOMS),
        f"print what each level needs at the start{few}",
    )
    sizes, most = _draw_sizes(submission), _draw_tiles(submission)
    hint = "do not halve what fits already"
    if submission.parameters.search != "halves":
        hint = "stop at the first number that fits"
    _check_largest(submission, ("WS", *most, sizes, (math.inf, 1e12, math.inf)), hint)


@points(1)
def what_never_fits_is_an_error(submission: Submission) -> None:
    """`largest` raises ValueError if not even one tile fits."""
    sizes = _draw_sizes(submission)
    # L1 limits k1; where it does not, all 8 channels fit; the last case has no room even for the sums
    for level, k1, share in ((0, 1, 1), (1, 8, 1), (2, 8, 1), (0, 1, 0)):
        rooms = [1e9] * 3
        rooms[level] = share * reference.needs("IS", k1, 1, 1, sizes, **_next(submission))[level] - 1.0
        given = f"IS, channels 8, streamed 4, stationary 6, sizes {sizes}, rooms {tuple(map(int, rooms))}"
        start = "1 - 1" if submission.parameters.search == "takes one" else "1 // 2"
        hint = f"{start} is 0, and no tile at all is no answer: {LEVELS[level]} is too small then"
        with expect.case(given, hint):
            answers = _largest(submission, "IS", 8, 4, 6, sizes, tuple(rooms))
            what = "`largest` returns tiles that do not fit"
            expect.true(any(map(_is_value_error, answers)), what, expected="ValueError", got=answers[0])
    try:
        answers = _largest(submission, "IS", 8, 4, 6, sizes, (math.inf,) * 3)
    except expect.CheckFailed:  # another fault costs the points of the other checks
        return
    what, given = "`largest` rejects a case that fits", "levels without a limit"
    expect.true(not all(map(_is_value_error, answers)), what, expected="tiles", got="ValueError", given=given)


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
            an_exact_fit_fits,
            the_papers_example_comes_out,
            what_never_fits_is_an_error,
        ),
        varies=(NEXT_TILE, NEEDS_KEYS, SEARCH),
        seconds=20,
        minutes=40,
        builds_on=("P4.2",),
        libraries=NESTS,
    ),
)
