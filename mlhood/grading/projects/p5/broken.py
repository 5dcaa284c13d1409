"""Checks of P5.4: four programs that work without `jax.jit` and break under it, repaired."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes:"
MASK = "a Boolean index has a shape that depends on the values of x; a mask does not: jnp.where(x > 0, x, 0)"
LOOP = "jax.lax.while_loop(condition, next_guess, first_guess): a Python `while` cannot test a traced value"
RATE = "jax.random.bernoulli(key, 1 - rate, x.shape) selects the elements to keep, for jnp.where"


@points(2)
def positive_numbers_are_summed(submission: Submission) -> None:
    """`positive_sum` works under `jax.jit`."""
    for x in (submission.normal(9), -1 - np.abs(submission.normal(5)), submission.normal(3, 4)):
        with expect.case(f"x {x.shape}", MASK):
            got = submission.call(PROBES + "jitted", submission.value("positive_sum"), [x])
            expect.close(got, np.asarray(np.maximum(x, 0).sum()), "the sum")


@points(1)
def rows_are_summed_apart(submission: Submission) -> None:
    """`positive_sum` works under `jax.vmap`, where each row has its own positive values."""
    x = submission.normal(5, 7)
    with expect.case(f"each row of x {x.shape}", MASK):
        got = submission.call(PROBES + "vmapped", submission.value("positive_sum"), [x])
        expect.close(got, np.maximum(x, 0).sum(axis=1), "the sums")


def _root(submission: Submission, a: float) -> np.ndarray:
    """Return the student's square root; to be called in an `expect.case`."""
    answer = submission.call(PROBES + "bounded_root", submission.value("square_root"), a)
    report = expect.mapping(answer, ("result", "endless", "operations"), "the run of `square_root`")
    expect.true(report["endless"] is not True, "the loop does not stop")
    operations = report["operations"] if isinstance(report["operations"], list | tuple) else []
    iterates = any(name in operations for name in ("while", "scan", "div"))  # `div` if the loop is unrolled
    shown = ", ".join(sorted({str(name) for name in operations})) or "nothing"
    what = "this is not Newton's iteration"
    expect.true(iterates, what, expected="a loop among the traced operations", got=shown, hint=LOOP)
    return expect.array(report["result"], (), "what `square_root` returns")


@points(2)
def roots_are_found(submission: Submission) -> None:
    """`square_root` works under `jax.jit`, for numbers from 1e-6 to 1e6."""
    hint = "(x + a / x) / 2, until it changes by no more than 1e-6 of x"
    for a in (1e-6, 1e6, *10 ** submission.rng.uniform(-6, 6, 3)):
        a = float(np.float32(a))
        with expect.case(f"a = {a:g}", LOOP):
            expect.close(_root(submission, a), np.asarray(np.sqrt(a)), "the root", rtol=1e-4, atol=0, hint=hint)


@points(1)
def the_root_of_zero_stops(submission: Submission) -> None:
    """`square_root` terminates for 0 and returns 0."""
    hint = "for a = 0 each guess is half of the previous one, so the relative change never becomes small; 0 / 0 is NaN"
    with expect.case("a = 0", hint):
        expect.close(_root(submission, 0.0), np.asarray(0.0), "the root", atol=1e-6)
    a = float(np.float32(submission.rng.uniform(2, 5)))  # what returns 0 for every number computes no root
    with expect.case(f"a = {a:g}", LOOP):
        expect.close(_root(submission, a), np.asarray(np.sqrt(a)), "the root", rtol=0.2)


@points(2)
def means_run_along(submission: Submission) -> None:
    """`running_mean` works under `jax.jit` and keeps everything it needs in its state."""
    for size in (5, 3):
        values = [int(value) / 4 for value in submission.rng.integers(-20, 20, size)]
        hint = "return (mean, (count, total)): the memory is passed in and returned"
        with expect.case(f"the numbers {values}, one after another", hint):
            answer = submission.call(PROBES + "running_means", submission.value("running_mean"), values)
            steps = list(answer) if isinstance(answer, list | tuple) else []
            expect.true(len(steps) == len(values), "`running_mean` does not return (mean, state)")
            for count, (got_mean, got_state) in enumerate(steps, start=1):
                expect.close(got_mean, np.asarray(np.mean(values[:count])), f"the mean of {count}")
                state = expect.array([expect.number(part, "the state") for part in got_state], (2,), "the state")
                want = np.array([count, np.sum(values[:count])])
                expect.close(state, want, f"the state after {count}", hint="(count, total)")


@points(1)
def the_same_gives_the_same(submission: Submission) -> None:
    """`running_mean` returns the same for the same arguments, however often it is called."""
    value, state = float(submission.rng.integers(1, 9)), [3.0, float(submission.rng.integers(1, 20))]
    hint = "a list outside of the function is changed only while it is traced: keep no state there"
    with expect.case(f"x = {value:g}, state = {tuple(state)}, three times"):
        answer = submission.call(PROBES + "repeated", submission.value("running_mean"), value, state)
        results = list(answer) if isinstance(answer, list | tuple) else []
        expect.true(len(results) == 3 and bool(results[0]), "`running_mean` returns nothing", got=answer)
        shown, first = " | ".join(map(expect.format_value, results)), results[0]
        same = all(isinstance(x, list) and len(x) == len(first) and np.allclose(x, first) for x in results)
        expect.true(same, "the same arguments give different results", got=shown, hint=hint)
        other = submission.call(PROBES + "repeated", submission.value("running_mean"), value + 1, state)
        differs = isinstance(other, list | tuple) and bool(other) and other[0] != first
        expect.true(differs, "other arguments give the same result", expected="another mean", got=shown)


def _dropout(submission: Submission, seed: int, x: np.ndarray, rate: float) -> np.ndarray:
    with expect.case(f"x {x.shape}, rate {rate}", RATE):
        got = submission.call(PROBES + "dropped", submission.value("dropout"), seed, x, rate)
        return expect.array(got, x.shape, "what `dropout` returns")


def _draw_dropout_input(submission: Submission) -> np.ndarray:
    return (1 + submission.rng.random((60, 50))).astype(np.float32)


@points(1)
def as_many_as_asked_are_dropped(submission: Submission) -> None:
    """`dropout` works under `jax.jit` and sets about `rate` of the elements to zero, independently."""
    x = _draw_dropout_input(submission)
    for rate in (0.25, 0.7):
        zero = _dropout(submission, int(submission.rng.integers(1000)), x, rate) == 0
        share, margin = float(zero.mean()), 6 * np.sqrt(rate * (1 - rate) / x.size)
        with expect.case(f"x {x.shape}, rate {rate}", RATE):
            what = "the wrong share of elements becomes zero"
            expect.true(abs(share - rate) < margin, what, expected=f"{rate} ± {margin:.2f}", got=f"{share:.3f}")
            for axis, name in enumerate(("columns", "rows")):
                uniform = float((zero.all(axis) | ~zero.any(axis)).mean())
                what = f"whole {name} are dropped together"
                expect.true(uniform < 0.5, what, expected="each element by itself", got=f"{uniform:.0%} of the {name}")


@points(1)
def what_stays_is_scaled(submission: Submission) -> None:
    """`dropout` scales the remaining elements by 1 / (1 - rate), so that the expected sum is unchanged."""
    x = _draw_dropout_input(submission)
    for rate in (0.25, 0.7):
        got = _dropout(submission, int(submission.rng.integers(1000)), x, rate)
        nonzero = got != 0
        expect.true(bool(nonzero.any()), "no element remains", given=f"rate {rate}", hint=RATE)
        given = f"x {x.shape}, rate {rate}"
        expect.close(
            got[nonzero], (x / (1 - rate))[nonzero], "the remaining elements", given=given, hint="x / (1 - rate)"
        )


@points(1)
def masks_come_from_the_key(submission: Submission) -> None:
    """`dropout` drops the same elements for the same key and others for another key."""
    x = _draw_dropout_input(submission)
    seed = int(submission.rng.integers(1000))
    first, again, other = (_dropout(submission, number, x, 0.5) == 0 for number in (seed, seed, seed + 1))
    with expect.case(f"x {x.shape}, rate 0.5", "all randomness comes from the key: jax.random, and never np.random"):
        expect.true(bool((first == again).all()), "the same key gives another mask")
        changed = float((first != other).mean())
        what, expected = "another key gives the same mask", "about half of the elements changed"
        expect.true(changed > 0.1, what, expected=expected, got=f"{changed:.3f}")


TASKS = (
    Task(
        "P5.4",
        "Four broken programs",
        checks=(
            positive_numbers_are_summed,
            rows_are_summed_apart,
            roots_are_found,
            the_root_of_zero_stops,
            means_run_along,
            the_same_gives_the_same,
            as_many_as_asked_are_dropped,
            what_stays_is_scaled,
            masks_come_from_the_key,
        ),
    ),
)
