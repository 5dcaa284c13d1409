"""Checks of P5.4: four programs that work without `jax.jit` and break under it, repaired."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes:"
MASK = "a Boolean index has a shape that depends on the values of x; what has the shape of x, and the same sum?"
LOOP = "jax.lax.while_loop takes a condition, a step and a first guess: a Python `while` cannot test a traced value"
RATE = "draw a mask of the shape of x from the key (jax.random), and select by it (jnp.where)"
LIBRARY = ("sqrt", "rsqrt", "cbrt", "pow", "exp", "exp2", "log", "log1p", "pure_callback", "io_callback")
UNROLLED = 10  # divisions at least, if Newton's method is not a loop: from 1e-6 to 1e6 it needs more than twice as many


@points(1)
def positive_numbers_are_summed(submission: Submission) -> None:
    """`positive_sum` works under `jax.jit`."""
    for x in (submission.normal(9), -1 - np.abs(submission.normal(5)), submission.normal(3, 4)):
        with expect.case(f"x {x.shape}", MASK):
            got = submission.call(PROBES + "jitted", submission.value("positive_sum"), [x])
            want = np.asarray(np.maximum(x, 0).sum())
            expect.close(got, want, "what `positive_sum` returns: the sum", dtype=np.float32)


@points(1)
def rows_are_summed_apart(submission: Submission) -> None:
    """`positive_sum` works under `jax.vmap`, where each row has its own positive values."""
    for shape in ((5, 7), (3, 4)):
        x = submission.normal(*shape)
        with expect.case(f"each row of x {x.shape}", MASK):
            got = submission.call(PROBES + "vmapped", submission.value("positive_sum"), [x])
            expect.close(got, np.maximum(x, 0).sum(axis=1), "the sums of `positive_sum`", dtype=np.float32)


def _root(submission: Submission, a: float) -> np.ndarray:
    """Return the student's square root; to be called in an `expect.case`."""
    answer = submission.call(PROBES + "bounded_root", submission.value("square_root"), a)
    report = expect.mapping(answer, ("result", "endless", "operations"), "the run of `square_root`")
    expect.true(report["endless"] is not True, "the loop does not stop")
    operations = report["operations"] if isinstance(report["operations"], list | tuple) else []
    loops = any(name in operations for name in ("while", "scan")) or operations.count("div") >= UNROLLED
    library = sorted({str(name) for name in operations}.intersection(LIBRARY))
    what = "`square_root` is not Newton's iteration"
    got = ", ".join(sorted({str(name) for name in operations})) or "nothing"
    expect.true(not library, what, expected="+, -, *, / and comparisons", got=f"the operations {', '.join(library)}")
    expected = "a loop that divides, among the traced operations"
    expect.true(loops and "div" in operations, what, expected=expected, got=got, hint=LOOP)
    return expect.is_array(expect.array(report["result"], (), "what `square_root` returns"), np.float32, "the root")


@points(2)
def roots_are_found(submission: Submission) -> None:
    """`square_root` works under `jax.jit`, for numbers from 1e-6 to 1e6."""
    hint = (
        "when does the loop end? Compare the change with the guess itself: 1e-6 is small beside 1, but not beside 1e-3"
    )
    for a in (1e-6, 1e6, *10 ** submission.rng.uniform(-6, 6, 3)):
        a = float(np.float32(a))
        with expect.case(f"a = {a:g}", LOOP):
            root = _root(submission, a)
            expect.close(root, np.asarray(np.sqrt(a)), "the root by `square_root`", rtol=1e-4, atol=0, hint=hint)


@points(1)
def the_root_of_zero_stops(submission: Submission) -> None:
    """`square_root` terminates for 0 and returns 0."""
    hint = "for a = 0 each guess is half of the previous one, so the relative change never becomes small; 0 / 0 is NaN"
    with expect.case("a = 0", hint):
        expect.close(_root(submission, 0.0), np.asarray(0.0), "the root by `square_root`", atol=1e-6)
    a = float(np.float32(submission.rng.uniform(2, 5)))  # what returns 0 for every number computes no root
    with expect.case(f"a = {a:g}", LOOP):
        expect.close(_root(submission, a), np.asarray(np.sqrt(a)), "the root", rtol=0.2)


@points(1)
def means_run_along(submission: Submission) -> None:
    """`running_mean` works under `jax.jit` and keeps everything it needs in its state."""
    for size in (5, 3):
        values = [int(value) / 4 for value in submission.rng.integers(-20, 20, size)]
        hint = "the memory is passed in and returned: a pair of the mean and the new state"
        with expect.case(f"the numbers {values}, one after another", hint):
            answer = submission.call(PROBES + "running_means", submission.value("running_mean"), values)
            steps = list(answer) if isinstance(answer, list | tuple) else []
            expect.true(len(steps) == len(values), "`running_mean` does not return (mean, state)")
            for count, (got_mean, got_state) in enumerate(steps, start=1):
                mean = np.asarray(np.mean(values[:count]))
                expect.close(got_mean, mean, f"the mean of {count} by `running_mean`", dtype=np.float32)
                state = expect.array([expect.number(part, "the state") for part in got_state], (2,), "the state")
                want = np.array([count, np.sum(values[:count])])
                expect.close(state, want, f"the state after {count} by `running_mean`", hint="(count, total)")


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
        expect.true(same, "`running_mean` gives different results for the same arguments", got=shown, hint=hint)
        other = submission.call(PROBES + "repeated", submission.value("running_mean"), value + 1, state)
        differs = isinstance(other, list | tuple) and bool(other) and other[0] != first
        expect.true(differs, "`running_mean` gives the same for other arguments", expected="another mean", got=shown)


def _dropout(submission: Submission, seed: int, x: np.ndarray, rate: float) -> np.ndarray:
    with expect.case(f"x {x.shape}, rate {rate}", RATE):
        got = submission.call(PROBES + "dropped", submission.value("dropout"), seed, x, rate)
        values = expect.array(got, x.shape, "what `dropout` returns")
        return expect.is_array(values, np.float32, "what `dropout` returns")


def _draw_dropout_input(submission: Submission, *shape: int) -> np.ndarray:
    return (1 + submission.rng.random(shape or (60, 50))).astype(np.float32)


@points(1)
def as_many_as_asked_are_dropped(submission: Submission) -> None:
    """`dropout` works under `jax.jit` and sets about `rate` of the elements to zero, independently."""
    x = _draw_dropout_input(submission)
    for rate in (0.25, 0.7):
        zero = _dropout(submission, int(submission.rng.integers(1000)), x, rate) == 0
        share, margin = float(zero.mean()), 6 * np.sqrt(rate * (1 - rate) / x.size)
        with expect.case(f"x {x.shape}, rate {rate}", RATE):
            what = "the wrong share of elements becomes zero in `dropout`"
            expect.true(abs(share - rate) < margin, what, expected=f"{rate} ± {margin:.2f}", got=f"{share:.3f}")
            for axis, name in enumerate(("columns", "rows")):
                uniform = float((zero.all(axis) | ~zero.any(axis)).mean())
                what = f"whole {name} are dropped together by `dropout`"
                expect.true(uniform < 0.5, what, expected="each element by itself", got=f"{uniform:.0%} of the {name}")
    for shape in ((7,), (3, 2, 5)):
        x = _draw_dropout_input(submission, *shape)
        got, what = _dropout(submission, int(submission.rng.integers(1000)), x, 0.0), "what `dropout` returns"
        expect.close(got, x, what, given=f"x {x.shape}, rate 0", hint="with rate 0 nothing is dropped")


@points(1)
def what_stays_is_scaled(submission: Submission) -> None:
    """`dropout` scales the remaining elements by 1 / (1 - rate), so that the expected sum is unchanged."""
    x = _draw_dropout_input(submission)
    for rate in (0.25, 0.7):
        got = _dropout(submission, int(submission.rng.integers(1000)), x, rate)
        nonzero = got != 0
        expect.true(bool(nonzero.any()), "no element remains after `dropout`", given=f"rate {rate}", hint=RATE)
        given, hint = (
            f"x {x.shape}, rate {rate}",
            "by which factor do the others grow, so that the expected sum is kept?",
        )
        what = "the remaining elements of `dropout`"
        expect.close(got[nonzero], (x / (1 - rate))[nonzero], what, given=given, hint=hint)


@points(1)
def masks_come_from_the_key(submission: Submission) -> None:
    """`dropout` drops the same elements for the same key and others for another key."""
    x = _draw_dropout_input(submission)
    seed = int(submission.rng.integers(1000))
    first, again, other = (_dropout(submission, number, x, 0.5) == 0 for number in (seed, seed, seed + 1))
    with expect.case(f"x {x.shape}, rate 0.5", "all randomness comes from the key: jax.random, and never np.random"):
        expect.true(bool((first == again).all()), "`dropout` draws another mask for the same key")
        changed = float((first != other).mean())
        what, expected = "`dropout` draws the same mask for another key", "about half of the elements changed"
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
        minutes=40,
    ),
)
