"""Checks of P5.4: four programs that work without `jax.jit` and break under it, repaired."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.libraries import JAX
from mlhood.grading.projects.p5.programs import run_programs
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes:"
MASK = "a Boolean index has a shape that depends on the values of x; what has the shape of x, and the same sum?"
LOOP = "jax.lax.while_loop takes a condition, a step and a first guess: a Python `while` cannot test a traced value"
RATE = "draw a mask of the shape of x from the key (jax.random), and select by it (jnp.where)"
# StableHLO's operations for +, -, *, / and comparisons of a number, with loops, choices and shapes around them
_ARITHMETIC = """
add subtract multiply divide negate abs sign square maximum minimum clamp dot_general compare and or not xor is_finite
select while case if return constant convert broadcast_in_dim reshape concatenate transpose slice dynamic_slice gather
dynamic_update_slice iota reduce optimization_barrier
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())
ROOT = Parameter("root", ("square_root", "cube_root", "fourth_root", "fifth_root"))
# the probability that a number becomes 0, or stays; or the factor by which those that stay grow
DROPOUT_BY = Parameter("dropout_by", ("rate", "keep", "factor"))
SHRINKS = {2: "half", 3: "two thirds", 4: "three quarters", 5: "four fifths"}
UNROLLED = 10  # divisions at least, if Newton's method is not a loop: from 1e-6 to 1e6 it needs more than twice as many


@points(0.5)
def positive_numbers_are_summed(submission: Submission) -> None:
    """`positive_sum` works under `jax.jit`."""
    endless = submission.normal(6)
    endless[:2] = -np.inf, np.finfo(np.float32).min
    arrays = [submission.normal(9), -1 - np.abs(submission.normal(5)), submission.normal(3, 4), endless]
    _check_sums(submission, "program", arrays, [np.asarray(np.maximum(x, 0).sum()) for x in arrays])


def _check_sums(submission: Submission, probe: str, arrays: list[np.ndarray], want: list[np.ndarray]) -> None:
    programs = []
    for x in arrays:
        with expect.case(f"x {x.shape}", MASK):
            programs.append((submission.probe(PROBES + probe, "positive_sum", [x]), [[x]]))
    for x, right, report in zip(arrays, want, run_programs(submission, *programs), strict=True):
        with expect.case(f"x {x.shape}, from {x.min():.4g} to {x.max():.4g}", MASK):
            ((got,),) = report["results"]
            expect.close(got, right, "what `positive_sum` returns: the sum", dtype=np.float32)


@points(0.5)
def rows_are_summed_apart(submission: Submission) -> None:
    """`positive_sum` works under `jax.vmap`, where each row has its own positive values."""
    arrays = [submission.normal(5, 7), submission.normal(3, 4)]
    _check_sums(submission, "vmapped", arrays, [np.maximum(x, 0).sum(axis=1) for x in arrays])


def _check_roots(submission: Submission, numbers: list[float], hint: str, **tolerances: float) -> None:
    """Check that the program of the student's root is Newton's method, and its results for some numbers."""
    name, numbers = submission.parameters.root, [float(np.float32(number)) for number in numbers]
    with expect.case(None, LOOP):
        answer = submission.probe(PROBES + "root_program", name, numbers, keys=("program", "endless"))
        with expect.case(f"a = {', '.join(f'{number:g}' for number in numbers)}", hint):
            expect.true(answer["endless"] == [False] * len(numbers), "the loop does not stop")
        (report,) = run_programs(submission, (answer["program"], [[np.float32(number)] for number in numbers]))
        library, got = sorted({*report["operations"]} - ARITHMETIC), ", ".join(sorted({*report["operations"]}))
        what, expected = f"`{name}` is not Newton's iteration", "+, -, *, / and comparisons"
        expect.true(not library, what, expected=expected, got=f"the operations {', '.join(library)}")
        loops = "while" in report["operations"] or report["divisions"] >= UNROLLED
        expected = "a loop that divides by the guess, among the traced operations"
        expect.true(loops and report["divisions"] > 0, what, expected=expected, got=got, hint=LOOP)
    for number, results in zip(numbers, report["results"], strict=True):
        with expect.case(f"a = {number:g}", hint):
            what, want = f"the root by `{name}`", np.asarray(number ** (1 / _degree(submission)))
            expect.equal(len(results), 1, f"`{name}` returns a different number of arrays")
            expect.close(results[0], want, what, dtype=np.float32, **tolerances)


@points(1.5)
def roots_are_found(submission: Submission) -> None:
    """`{{ root }}` works under `jax.jit`, for numbers from 1e-6 to 1e6."""
    hint = (
        "when does the loop end? Compare the change with the guess itself: 1e-6 is small beside 1, but not beside 1e-3"
    )
    _check_roots(submission, [1e-6, 1.0, 1e6, *10 ** submission.rng.uniform(-6, 6, 3)], hint, rtol=1e-4, atol=0)


def _degree(submission: Submission) -> int:
    return 2 + ROOT.values.index(submission.parameters.root)


@points(0.5)
def the_root_of_zero_stops(submission: Submission) -> None:
    """`{{ root }}` terminates for 0 and returns 0."""
    part = f"{SHRINKS[_degree(submission)]} of the previous one"
    hint = f"for a = 0 each guess is {part}, so the relative change never becomes small; 0 / 0 is NaN"
    # what returns 0 for every number computes no root
    _check_roots(submission, [0.0, submission.rng.uniform(2, 5)], hint, rtol=0.2, atol=1e-6)


@points(0.5)
def means_run_along(submission: Submission) -> None:
    """`running_mean` works under `jax.jit` and keeps everything it needs in its state."""
    for size in (5, 3):
        values = [int(value) / 4 for value in submission.rng.integers(-20, 20, size)]
        hint = "the memory is passed in and returned: a pair of the mean and the new state"
        with expect.case(f"the numbers {values}, one after another", hint):
            states = [np.array([count, sum(values[:count])], np.float32) for count in range(size + 1)]
            cases = [[np.float32(x), *state] for x, state in zip(values, states[:-1], strict=True)]
            (report,) = run_programs(submission, (submission.probe(PROBES + "mean_program", "running_mean"), cases))
            for count, results in enumerate(report["results"], start=1):
                expect.true(len(results) > 1, "`running_mean` does not return (mean, state)")
                want = np.asarray(sum(values[:count]) / count)
                expect.close(results[0], want, f"the mean of {count} by `running_mean`", dtype=np.float32)
                for part in results[1:]:
                    expect.is_array(part, np.float32, f"the state after {count} by `running_mean`")
                got, what = np.hstack([np.ravel(part) for part in results[1:]]), f"the state after {count}"
                expect.close(got, states[count], f"{what} by `running_mean`", hint="the state is (count, total)")


@points(0.5)
def the_same_gives_the_same(submission: Submission) -> None:
    """`running_mean` returns the same for the same arguments, however often it is called."""
    value, state = float(submission.rng.integers(1, 9)), [3.0, float(submission.rng.integers(1, 20))]
    hint = "a list outside of the function is changed only while it is traced: keep no state there"
    with expect.case(f"x = {value:g}, state = {tuple(state)}, three times"):
        answer = submission.probe(PROBES + "repeated", "running_mean", value, state)
        results = list(answer) if isinstance(answer, list | tuple) else []
        expect.true(len(results) == 3 and bool(results[0]), "`running_mean` returns nothing", got=answer)
        shown, first = " | ".join(map(expect.format_value, results)), results[0]
        same = all(isinstance(x, list) and len(x) == len(first) and np.allclose(x, first) for x in results)
        expect.true(same, "`running_mean` gives different results for the same arguments", got=shown, hint=hint)
        computed = len(first) == 1 + len(state) and first != [value, *state]
        expect.true(computed, "`running_mean` returns no mean with a state", expected="(mean, state)", got=shown)
        other = submission.probe(PROBES + "repeated", "running_mean", value + 1, state)
        differs = isinstance(other, list | tuple) and bool(other) and other[0] != first
        expect.true(differs, "`running_mean` gives the same for other arguments", expected="another mean", got=shown)


def _argument(submission: Submission, rate: float) -> float:
    """Return the argument of `dropout` in this variant, for a rate."""
    arguments = {"rate": rate, "keep": round(1 - rate, 6), "factor": round(1 / (1 - rate), 6)}
    return arguments[submission.parameters.dropout_by]


def _dropped(
    submission: Submission, rate: float, shape: tuple[int, ...], seeds: list[int]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw an array of numbers of which none is 0; return it, and the results of `dropout` for keys of these seeds."""
    x, what = (1 + submission.rng.random(shape)).astype(np.float32), "what `dropout` returns"
    results = submission.probe(PROBES + "dropped", "dropout", seeds, x, _argument(submission, rate))
    return x, [expect.is_array(expect.array(each, shape, what), np.float32, what) for each in results]


def _dropout_case(
    submission: Submission, rate: float, shape: tuple[int, ...], hint: str
) -> AbstractContextManager[None]:
    return expect.case(f"x {shape}, {submission.parameters.dropout_by} {_argument(submission, rate):g}", hint)


@points(1)
def as_many_as_asked_are_dropped(submission: Submission) -> None:
    """`dropout` works under `jax.jit` and sets about {{ {"keep": "1 - `keep`", "factor": "1 - 1 / `factor`"}.get(dropout_by, "`rate`") }} of the elements to zero, independently."""  # noqa: E501
    x, seed = (1 + submission.rng.random(500)).astype(np.float32), int(submission.rng.integers(1000))
    with _dropout_case(submission, 0.5, x.shape, RATE):
        program = submission.probe(PROBES + "dropout_program", "dropout", x, _argument(submission, 0.5))
        (report,) = run_programs(submission, (program, [[np.array([0, seed], np.uint32), x]]))
        ((traced,),) = report["results"]
        _check_independent([expect.array(traced, x.shape, "what `dropout` returns") == 0], 0.5)
    for rate, shape in ((0.25, (60, 50)), (0.7, (12, 14, 16)), (0.0, (3, 2, 5))):
        with _dropout_case(submission, rate, shape, RATE):
            x, results = _dropped(submission, rate, shape, submission.rng.choice(1000, 5, replace=False).tolist())
            if rate:
                _check_independent([result == 0 for result in results], rate)
            else:
                expect.close(results[0], x, "what `dropout` returns where nothing is dropped")


def _check_independent(masks: list[np.ndarray], rate: float) -> None:
    """Check masks of several keys, in which a number is dropped at a rate, whatever happens to the others.

    The bounds are six standard deviations wide, and five masks of the same number are as unlikely.
    """
    mask = masks[0]
    share, margin = float(mask.mean()), 6 * np.sqrt(rate * (1 - rate) / mask.size)
    what, expected = "the wrong share of elements becomes zero in `dropout`", f"{rate} ± {margin:.2f}"
    expect.true(abs(share - rate) < margin, what, expected=expected, got=f"{share:.3f}")
    alike = rate**2 + (1 - rate) ** 2
    for axis in range(mask.ndim):
        left, right = (np.take(mask, range(start, mask.shape[axis] - 1 + start), axis) for start in (0, 1))
        share, margin = float((left == right).mean()), 3 / np.sqrt(left.size)
        what, expected = "neighbours are not dropped independently by `dropout`", f"{alike:g} ± {margin:.2f} alike"
        expect.true(abs(share - alike) < margin, what, expected=expected, got=f"{share:.3f} along axis {axis}")
    counts = [int(mask.sum()) for mask in masks]
    drawn = any((mask != masks[0]).any() for mask in masks)  # else the key is not used, which is another mistake
    what, expected = "`dropout` drops the same number of elements for every key", "each element by itself"
    expect.true(len(set(counts)) > 1 or not drawn, what, expected=expected, got=f"{counts[0]} of {mask.size} each time")


@points(0.5)
def what_stays_is_scaled(submission: Submission) -> None:
    """`dropout` scales the remaining elements by {{ {"keep": "1 / keep", "factor": "factor"}.get(dropout_by, "1 / (1 - rate)") }}, so that the expected sum is unchanged."""  # noqa: E501
    for rate, shape in ((0.25, (60, 50)), (0.7, (60, 50))):
        hint = "by which factor do the others grow, so that the expected sum is kept?"
        with _dropout_case(submission, rate, shape, hint):
            x, (got,) = _dropped(submission, rate, shape, [int(submission.rng.integers(1000))])
            expect.true(bool(got.any()), "no element remains after `dropout`")
            what = "the remaining elements of `dropout`"
            expect.close(got[got != 0], (x / (1 - rate))[got != 0], what)


@points(0.5)
def masks_come_from_the_key(submission: Submission) -> None:
    """`dropout` drops the same elements for the same key and others for another key."""
    seed, hint = (
        int(submission.rng.integers(1000)),
        "all randomness comes from the key: jax.random, and never np.random",
    )
    with _dropout_case(submission, 0.5, (60, 50), hint):
        _, results = _dropped(submission, 0.5, (60, 50), [seed, seed, seed + 1])
        first, again, other = (result == 0 for result in results)
        expect.true(bool((first == again).all()), "`dropout` draws another mask for the same key")
        changed = float((first != other).mean())
        what, expected = "`dropout` draws the same mask for another key", "about half of the elements changed"
        expect.true(changed > 0.1, what, expected=expected, got=f"{changed:.3f}")


P5_4 = Task(
    "P5.4",
    "Four broken programs",
    varies=(ROOT, DROPOUT_BY),
    minutes=40,
    libraries=JAX,
)
