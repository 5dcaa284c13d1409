"""Checks of P2.14: slices of layers for a neural processor of many tilelets, with the fewest cycles."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import convolution
from mlhood.compiler.backends.nmp.codegen.search import cycles_of, greedy, lower_bound, search
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, check_fits
from mlhood.compiler.backends.nmp.machine import Machine, default_machine
from mlhood.errors import CompilerError
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER
from mlhood.grading.projects.p2.neural_processor import AXES, Layer, given_layer, natural, sizes_of, whole
from mlhood.grading.variants.parameter import Parameter

# tiles of the machine that `fastest` is for, and tilelets of each; and the KiB of its blobs
NMP_TILES = Parameter("nmp_tiles", ((4, 8), (8, 4), (16, 2), (32, 1)))
NMP_BLOB = Parameter("nmp_blob", (8, 6, 12))

LAYERS = 5  # of which the mean counts
MOST_SLICES = 50_000


@cache
def rivals(layer: tuple[tuple[str, int], ...], machine: Machine) -> tuple[int, int, int]:
    """Return the cycles of the greedy slices, of the compiler's search, and the lower bound."""
    stages = (convolution(**dict(layer)),)
    return greedy(stages, machine).cycles, search(stages, machine).cycles, lower_bound(stages, machine)


def _open_machine(submission: Submission) -> Machine:
    """Return the machine of `fastest`: that of the course, with other tiles and blobs in a variant."""
    tiles, tilelets = submission.parameters.nmp_tiles
    blob = 1024 * submission.parameters.nmp_blob
    return replace(default_machine(), tiles=tiles, tilelets=tilelets, blob_bytes=blob)


def draw_open(rng: np.random.Generator, machine: Machine, number: int) -> Layer:
    """Draw a layer in which greedy slices waste at least a quarter of the cycles.

    Neither its image nor its output is square. Every other layer has strides and no padding.
    """
    while True:
        height, width = (int(n) for n in rng.permutation(np.arange(10, 25))[:2])
        kernel, stride, pad = ((3, 1, 1), (3, 2, 0))[number % 2]
        layer = {"channels": 8 * int(rng.integers(2, 7)), "height": height, "width": width}
        layer |= {"filters": 8 * int(rng.integers(2, 9)), "kernel": kernel, "stride": stride, "pad": pad}
        slow, fast, _ = rivals(tuple(layer.items()), machine)
        if fast < 0.75 * slow:
            return layer


def _cycles(submission: Submission, layer: Layer, machine: Machine) -> int:
    """Return the cycles of the student's slicing by the grader's own model."""
    answer = expect.mapping(submission.call("fastest", layer), (*AXES, "order"), "what `fastest` returns")
    tiles, tilelets = (natural(answer.get(name, 1), name) for name in ("tiles", "tilelets"))
    twice = bool(expect.number(answer.get("double_buffered", False), "`double_buffered`"))
    cut, stages = sizes_of(answer), (convolution(**layer),)
    slicing = Slicing(**cut, order=str(answer["order"]), tiles=tiles, tilelets=tilelets, double_buffered=twice)
    try:
        check_fits(stages, slicing, machine)
    except CompilerError as error:
        expect.fail("the slicing of `fastest` is invalid", got=error.one_line(), hint="see `first_misfit`")
    slices = math.prod(-(-length // cut[name]) for name, length in whole(layer).items())
    what = "`fastest` cuts too many slices"
    expect.true(slices <= MOST_SLICES, what, expected=f"at most {MOST_SLICES:,}", got=slices)
    return cycles_of(stages, slicing, machine)


def _saved(submission: Submission) -> tuple[float, str]:
    """Return which share of the cycles that the compiler's search saves `fastest` saves, on average; and all cycles."""
    shares, texts, machine = [], [], _open_machine(submission)
    for number in range(LAYERS):
        layer = draw_open(submission.rng, machine, number)
        with expect.case(given_layer(layer), "return a dictionary with the fields of a Slicing"):
            cycles = _cycles(submission, layer, machine)
        slow, fast, bound = rivals(tuple(layer.items()), machine)
        shares.append((slow - cycles) / (slow - fast))
        texts.append(f"{cycles:,} cycles (greedy {slow:,}, search {fast:,}, lower bound {bound:,})")
    return float(np.mean(shares)), "; ".join(texts)


def _check_cycles(submission: Submission, share: float, hint: str) -> None:
    """Check that a share of the cycles that the search saves is saved, on average."""
    saved, text = submission.once("saved", lambda: _saved(submission))
    submission.reach(100 * saved, course=100.0)
    expected = f"at least {share:.0%} of the cycles that the compiler's search saves"
    what, given = "the programs of `fastest` are too slow", f"the mean of {LAYERS} drawn layers"
    expect.true(saved >= share, what, expected=expected, got=f"{saved:.0%}: {text}", given=given, hint=hint)


@points(2)
def not_slower_than_greedy(submission: Submission) -> None:
    """The slicing of `fastest` fits, and takes no more cycles than the greedy one."""
    units = _open_machine(submission).units
    hint = f"how many of the {units} tilelets have work, and who shares it out: rows or filters?"
    _check_cycles(submission, 0.0, hint)


@points(2)
def half_of_the_way(submission: Submission) -> None:
    """`fastest` saves at least half of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.5, "trying is allowed: `time_program` says what each of several cuts takes")


@points(4)
def close_to_the_search(submission: Submission) -> None:
    """`fastest` saves at least nine tenths of the cycles that the compiler's search saves."""
    _check_cycles(submission, 0.9, "the fields that you have not varied yet: do transfers and products overlap?")


P2_14 = Task(
    "P2.14",
    "Fewest cycles",
    libraries=COMPILER,
    minutes=45,
    builds_on=("P2.12", "P2.13"),
    leaderboard="share of the cycles that the compiler's search saves, in %",
    varies=(NMP_TILES, NMP_BLOB),
)
