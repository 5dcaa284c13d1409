"""Checks of P3.8: how fast the student's own matrix product is, as a share of the course's, measured by the grader.

What is timed is the CPU time (see `timing`) of messages with many products of matrices that the function has not seen.
In the same rounds, in random order, this process times the course's own solution on the same sizes. Both processes run
on one core (see `one_core`): a slow machine slows both of them, and threads gain nothing. The
products take so much longer than the message that nothing is subtracted for it, which the student's process could
make longer. The figure is the share of the course's speed; of the ratios of all rounds, the trimmed mean counts.

A step is reached if the whole interval of a race is above it. Where a race misses it, its interval being below, there
is another one, of other matrices, when the machine has become quiet: another program may have run beside one process
only. Two of them, or one that is FAR below, refuse the step; otherwise it is left to the instructor. No point
is lost by noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.one_core import one_core
from mlhood.grading.checks.probes import Kept
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.tables import UNDECIDED
from mlhood.grading.checks.task import Check, Task
from mlhood.grading.checks.timing import KEEP, clock_of, course_clock, wait_until_quiet
from mlhood.grading.checks.timing_verdict import SIZE, trimmed_mean
from mlhood.grading.projects.p3.probes import products, shifted
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.variants.parameter import Parameter
from mlhood.kernels import GEMM
from mlhood.measure.ratio import Ratio

PROBE = "mlhood.grading.projects.p3.probes:products"
SHAPES = ((7, 5, 9), (33, 18, 300), (1, 40, 257), (130, 1, 7), (12, 261, 1), (64, 64, 64))
SMALLEST, LARGEST = 200, 520  # of the matrices that are timed, along each axis
SIZES = 3
CALLS = 60  # of each size in a message: fifty times the round trip
LOOKS = (5, 10, 20, 40)  # rounds after which a step may be decided
ATTEMPTS = 3  # races at most
CHECKED_ROWS = 8
# Of the speed of the course's own solution, which has the same vectors and caches; so the steps are as high everywhere.
# Measured, with vectors of 16 numbers: `gemm_reordered` gets 0.47 to 0.5, `gemm_packed` 0.58; in one process, four rows
# and two k at a time reach 0.8 of it.
# Sending the message counts as the student's time: the same code reaches 0.88 of its own speed on an idle machine, and
# 0.81 on a busy one. So the last step is below that.
STEPS = (0.55, 0.65, 0.75)
FAR = 2.0  # times: no load that slows one of the two processes only is taken for so much
# which operands `gemm_fast` gets transposed
BOTH = "both_transposed"
FAST_OPERANDS = Parameter("fast_operands", ("plain", "a_transposed", "b_transposed", BOTH))


@compared(
    2,
    "gemm_fast",
    typed=True,
    atol=1e-4,
    hint="the last tiles and panels may be smaller than the others: padding them with zeros keeps the loops simple",
)
def any_product_is_right(submission: Submission) -> Iterator[Arguments]:
    """`gemm_fast` multiplies matrices of any sizes."""
    for shape in SHAPES:
        yield _draw_operands(submission, *shape)


def _draw_operands(submission: Submission, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a and b as `gemm_fast` gets them, for a product [M, N]."""
    a, b = _factors(submission, submission.normal(m, k), submission.normal(k, n))
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def _factors(submission: Submission, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return views of a and b as they are, or transposed: from operands to factors, or from factors to operands."""
    operands = submission.parameters.fast_operands
    return a.T if operands in ("a_transposed", BOTH) else a, b.T if operands in ("b_transposed", BOTH) else b


def _races(submission: Submission) -> list[Ratio]:
    """Race the two products until all steps are decided, ATTEMPTS times at most."""
    races: list[Ratio] = []
    while len(races) < ATTEMPTS and not all(_state(races, step) for step in STEPS):
        if races:
            wait_until_quiet()
        races.append(_race(submission))
    return races


def _race(submission: Submission) -> Ratio:
    """Return the student's speed as a share of the course's, of as many rounds as it takes to decide all steps."""
    remote = submission.value("gemm_fast")
    expect.true(isinstance(remote, Remote), "`gemm_fast` is not a function", got=remote)
    own = _Product(submission, remote)
    sides, ratios = {"own": own.time, "course": own.local(_course_product(submission))}, []
    with one_core(submission):
        for side in sides.values():
            side()  # which may compile
        for look in LOOKS:
            while len(ratios) < look:
                taken = {str(name): sides[name]() for name in submission.rng.permutation(list(sides))}
                ratios.append(taken["course"] / taken["own"])
            share = trimmed_mean(ratios, SIZE)
            if not any(share.low < step <= share.high for step in STEPS):
                break
    return trimmed_mean(ratios, SIZE)


def _state(races: Sequence[Ratio], step: float) -> str:
    """Return "reached", "missed", or an empty text if the races leave the step open."""
    if any(race.low >= step for race in races):
        return "reached"
    missed = [race for race in races if race.high < step]
    far = any(FAR * race.high < step for race in missed)
    return "missed" if far or len(missed) > 1 else ""


class _Product:
    """Times products of matrices of a few sizes that are drawn once, in each call changed by another shift."""

    def __init__(self, submission: Submission, function: Remote) -> None:
        self.submission, self.function, self.clock = submission, function, clock_of(submission)
        sizes = submission.rng.integers(SMALLEST, LARGEST, (SIZES, 3)).tolist()
        self.pairs = [_draw_operands(submission, m, k, n) for m, k, n in sizes]
        self.kept = submission.call(KEEP, *(array for pair in self.pairs for array in pair))

    def time(self) -> float:
        """Return the seconds of a message with the student's products."""
        shifts, row = self._draw()
        start = self.clock()
        got = self.submission.call(PROBE, self.function, self.kept, shifts, row)
        taken = self.clock() - start
        self._check(got, shifts, row)
        return taken

    def local(self, function: Callable[..., np.ndarray]) -> Callable[[], float]:
        """Return a function that times the same work of a product in this process."""
        arrays = Kept([array for pair in self.pairs for array in pair])

        def time_products() -> float:
            shifts, row = self._draw()
            start = course_clock()
            products(function, arrays, shifts, row)
            return course_clock() - start

        return time_products

    def _draw(self) -> tuple[list[int], int]:
        rng = self.submission.rng
        return rng.integers(1, 10**6, CALLS).tolist(), int(rng.integers(SMALLEST - CHECKED_ROWS))

    def _check(self, got: Any, shifts: list[int], row: int) -> None:
        wanted = expect.sequence(got, list, "the products")
        expect.true(len(wanted) == SIZES, "not all products came back")
        for got_of_pair, (a, b) in zip(wanted, self.pairs, strict=True):
            factors = (_factors(self.submission, shifted(a, shift), b) for shift in shifts)
            want = np.stack([left[row : row + CHECKED_ROWS].astype(np.float64) @ right for left, right in factors])
            what = "what `gemm_fast` returns while it is timed"
            expect.close(got_of_pair, want, what, rtol=1e-3, atol=1e-3, given=f"a {a.shape}, b {b.shape}")


def _course_product(submission: Submission) -> Callable[..., np.ndarray]:
    """Return the course's product: its solution, or in the student version, which has none, its packed loops."""
    solution = submission.context.solution
    if isinstance(solution, Solution):
        return solution.compiled("gemm_fast")
    return lambda a, b: GEMM["packed"](*map(np.ascontiguousarray, _factors(submission, a, b)))


def _check_step(submission: Submission, step: float) -> None:
    expect.true(submission.passed(any_product_is_right), "`gemm_fast` is not right: a wrong product is not fast")
    races = submission.once("races", lambda: _races(submission))
    race = max(races, key=lambda race: race.value)
    name = "the package's packed loops"
    if isinstance(submission.context.solution, Solution):
        name = "the course's own solution"
        submission.reach(race.value, course=1.0)
    state, got = _state(races, step), f"{race} of it"
    expected = f"{step:g} of the speed of {name}, timed side by side"
    if not state:
        raise expect.CheckUndecided(f"{UNDECIDED}: `gemm_fast` has {got}; {expected}, is within this machine's noise")
    hint = "count what the innermost loop loads and stores for each multiply-add; what could serve several rows?"
    expect.true(state == "reached", "`gemm_fast` is too slow for this step", expected=expected, got=got, hint=hint)


SHARES = tuple(
    Check(
        f"{name}_share_of_the_course",
        f"`gemm_fast` has {step} of the speed of the course's product",
        4,
        _check_step,
        (step,),
    )
    for name, step in zip(("first", "second", "last"), STEPS, strict=True)
)


P3_8 = Task(
    "P3.8",
    "As near to the library as you can",
    checks=(any_product_is_right, *SHARES),
    libraries=LOOPS,
    varies=(FAST_OPERANDS,),
    timed=True,
    minutes=90,
    builds_on=("P3.7",),
    leaderboard="speed as a share of the course's own product",
)
