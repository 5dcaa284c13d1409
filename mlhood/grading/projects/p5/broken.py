"""Checks of P5.4: four programs that run without JAX and break under `jax.jit`, repaired."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes:"
DATA = "a mask has as many numbers as x, whatever they are: jnp.where(x > 0, x, 0)"
LOOP = "jax.lax.while_loop(goes_on, next_guess, first_guess): what is traced cannot decide a `while` of Python"
RATE = "jax.random.bernoulli(key, 1 - rate, x.shape) says what stays, and jnp.where takes it"


@points(2)
def positive_numbers_are_summed(submission: Submission) -> None:
    """`positive_sum` works under `jax.jit`."""
    for x in (submission.normal(9), -1 - np.abs(submission.normal(5)), submission.normal(3, 4)):
        with expect.case(f"x {x.shape}", DATA):
            got = submission.call(PROBES + "jitted", submission.value("positive_sum"), [x])
        expect.close(got, np.asarray(np.maximum(x, 0).sum()), "the sum", given=f"x {x.shape}", hint=DATA)


@points(1)
def rows_are_summed_apart(submission: Submission) -> None:
    """`positive_sum` works under `jax.vmap`, where every row has its own positive numbers."""
    x = submission.normal(5, 7)
    with expect.case(f"x {x.shape}, a row each", DATA):
        got = submission.call(PROBES + "vmapped", submission.value("positive_sum"), [x])
    expect.close(got, np.maximum(x, 0).sum(axis=1), "the sums", given=f"x {x.shape}, a row each", hint=DATA)


def _root(submission: Submission, a: float, hint: str) -> np.ndarray:
    with expect.case(f"a = {a:g}", hint):
        told = submission.call(PROBES + "bounded", submission.value("square_root"), a)
        report = expect.mapping(told, ("result", "endless", "operations"), "what `square_root` does")
    expect.true(report["endless"] is not True, "the loop does not stop", given=f"a = {a:g}", hint=hint)
    operations = report["operations"] if isinstance(report["operations"], list | tuple) else []
    iterates = any(one in operations for one in ("while", "scan", "div"))  # the last of a loop that is written out
    shown = ", ".join(sorted({str(one) for one in operations})) or "nothing"
    expect.true(iterates, "this is not Newton's iteration", expected="a loop in what is traced", got=shown,
                given=f"a = {a:g}", hint=LOOP)  # fmt: skip
    return expect.array(report["result"], (), "what `square_root` returns", given=f"a = {a:g}", hint=hint)


@points(2)
def roots_are_found(submission: Submission) -> None:
    """`square_root` works under `jax.jit`, for numbers from 1e-6 to 1e6."""
    for a in (1e-6, 1e6, *10 ** submission.rng.uniform(-6, 6, 3)):
        a = float(np.float32(a))
        hint = "(x + a / x) / 2, until it changes by no more than 1e-6 of x"
        root = _root(submission, a, LOOP)
        expect.close(root, np.asarray(np.sqrt(a)), "the root", rtol=1e-4, atol=0, given=f"a = {a:g}", hint=hint)


@points(1)
def the_root_of_zero_stops(submission: Submission) -> None:
    """`square_root` stops for 0, and gives 0."""
    hint = "every guess for 0 is half of the one before: a relative change never becomes small, and 0 / 0 is no number"
    expect.close(_root(submission, 0.0, hint), np.asarray(0.0), "the root", atol=1e-6, given="a = 0", hint=hint)


def _means(submission: Submission, values: list[float]) -> list[Any]:
    given = f"the numbers {values}, one after the other"
    hint = "return (mean, (count, total)): what is to be remembered comes in and goes out"
    with expect.case(given, hint):
        found = submission.call(PROBES + "running", submission.value("running_mean"), values)
    found = list(found) if isinstance(found, list | tuple) else []
    expect.true(len(found) == len(values), "`running_mean` returns no (mean, state)", given=given, hint=hint)
    for number, one in enumerate(found, start=1):
        so_far = values[:number]
        expect.close(one[0], np.asarray(np.mean(so_far)), f"the mean of {number}", given=given, hint=hint)
        state = expect.array([expect.number(part, "the state") for part in one[1]], (2,), "the state", given=given)
        expect.close(state, np.array([number, np.sum(so_far)]), f"the state after {number}", given=given,
                     hint="(count, total)")  # fmt: skip
    return found


@points(2)
def means_run_along(submission: Submission) -> None:
    """`running_mean` works under `jax.jit`, and has all it remembers in its state."""
    for count in (5, 3):
        _means(submission, [int(value) / 4 for value in submission.rng.integers(-20, 20, count)])


@points(1)
def the_same_gives_the_same(submission: Submission) -> None:
    """`running_mean` returns the same for the same arguments, however often it was called."""
    value, state = float(submission.rng.integers(1, 9)), [3.0, float(submission.rng.integers(1, 20))]
    given = f"x = {value:g}, state = {tuple(state)}, three times"
    with expect.case(given):
        told = submission.call(PROBES + "repeated", submission.value("running_mean"), value, state)
    found = list(told) if isinstance(told, list | tuple) else []
    expect.true(len(found) == 3 and bool(found[0]), "`running_mean` returns nothing", got=told, given=given)
    shown = " | ".join(expect.show(one) for one in found)
    hint = "a list outside of the function is written while it is traced, and never again: keep no memory there"
    same = all(isinstance(one, list) and len(one) == len(found[0]) and np.allclose(one, found[0]) for one in found)
    expect.true(same, "the same arguments give different results", got=shown, given=given, hint=hint)


def _dropped(submission: Submission, seed: int, x: np.ndarray, rate: float) -> np.ndarray:
    given = f"x {x.shape}, rate {rate}"
    with expect.case(given, RATE):
        got = submission.call(PROBES + "dropped", submission.value("dropout"), seed, x, rate)
    return expect.array(got, x.shape, "what `dropout` returns", given=given, hint=RATE)


def _dropout_input(submission: Submission) -> np.ndarray:
    return (1 + submission.rng.random((60, 50))).astype(np.float32)


@points(1)
def as_many_as_asked_are_dropped(submission: Submission) -> None:
    """`dropout` works under `jax.jit`, and makes zeros of about `rate` of the numbers."""
    x = _dropout_input(submission)
    for rate in (0.25, 0.7):
        dropped = _dropped(submission, int(submission.rng.integers(1000)), x, rate) == 0
        zeros = float(dropped.mean())
        within = 6 * np.sqrt(rate * (1 - rate) / x.size)
        expect.true(abs(zeros - rate) < within, "another part becomes zero", expected=f"{rate} ± {within:.2f}",
                    got=f"{zeros:.3f}", given=f"x {x.shape}, rate {rate}", hint=RATE)  # fmt: skip
        for axis, name in enumerate(("columns", "rows")):
            alike = float((dropped.all(axis) | ~dropped.any(axis)).mean())
            expect.true(alike < 0.5, f"whole {name} are dropped together", expected="each number for itself",
                        got=f"{alike:.0%} of the {name}", given=f"x {x.shape}, rate {rate}", hint=RATE)  # fmt: skip


@points(1)
def what_stays_is_scaled(submission: Submission) -> None:
    """`dropout` scales what stays by 1 / (1 - rate), so that sums stay as they are."""
    x = _dropout_input(submission)
    for rate in (0.25, 0.7):
        got = _dropped(submission, int(submission.rng.integers(1000)), x, rate)
        kept = got != 0
        expect.true(bool(kept.any()), "nothing stays", given=f"rate {rate}", hint=RATE)
        expect.close(got[kept], (x / (1 - rate))[kept], "what stays", given=f"x {x.shape}, rate {rate}",
                     hint="x / (1 - rate)")  # fmt: skip


@points(1)
def masks_come_from_the_key(submission: Submission) -> None:
    """`dropout` drops the same for the same key, and others for another key."""
    x = _dropout_input(submission)
    seed = int(submission.rng.integers(1000))
    first, again, other = (_dropped(submission, one, x, 0.5) == 0 for one in (seed, seed, seed + 1))
    hint = "all that is random comes from the key: jax.random and nothing of np.random"
    given = f"x {x.shape}, rate 0.5"
    expect.true(bool((first == again).all()), "the same key gives another mask", given=given, hint=hint)
    differs = float((first != other).mean())
    expect.true(differs > 0.1, "another key gives the same mask", expected="about half of the places changed",
                got=f"{differs:.3f}", given=given, hint=hint)  # fmt: skip


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
