"""Checks of P5.8: a loss, a step that optax makes, and a network that it has trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.gradients import same_tree
from mlhood.models import digits

PROBES = "mlhood.grading.projects.p5.probes:"
RATE, MOMENTUM = 0.125, 0.75
GOOD_ACCURACY = 0.95
STEP = "updates, state = optimizer.update(gradients, state, params); params = optax.apply_updates(params, updates)"


@points(1)
def cross_entropy_is_a_mean(submission: Submission) -> None:
    """`cross_entropy` is the mean of -log softmax at the labels."""
    hint = "-jax.nn.log_softmax(logits) at the label of each row, and the mean over the rows"
    for examples in (1, 7):
        logits, labels = 2 * submission.normal(examples, 10), submission.rng.integers(0, 10, examples)
        given = f"logits {logits.shape}"
        with expect.case(given, hint):
            got = submission.call(PROBES + "ran", submission.value("cross_entropy"), [logits, labels])
        want = np.asarray(reference.cross_entropy(logits, labels))
        expect.close(got, want, "what `cross_entropy` returns", given=given, hint=hint)


def _taken(submission: Submission) -> tuple[dict[str, Any], list[dict[str, np.ndarray]], list[float]]:
    """What three steps did, and what they should have done: parameters after each, losses before each."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    batches = [(submission.normal(8, 4), submission.normal(8, 3)) for _ in range(3)]
    with expect.case("optax.sgd with momentum, three batches", STEP):
        told = submission.call(PROBES + "trained_steps", submission.value("make_step"), params,
                               [list(pair) for pair in batches], RATE, MOMENTUM)  # fmt: skip
    report = dict(expect.mapping(told, ("params", "losses", "kept"), "what the steps did"))
    full = all(isinstance(part, list) and len(part) == len(batches) for part in report.values())
    expect.true(full, "`step` did not take three batches")
    return report, *reference.momentum_steps(params, batches, RATE, MOMENTUM)


@points(1)
def a_step_goes_down_the_gradient(submission: Submission) -> None:
    """`make_step` gives a step that returns new parameters, and the loss before it."""
    report, params, losses = _taken(submission)
    given = "optax.sgd, the first batch"
    same_tree(report["params"][0], params[0], "params", given=given, hint=STEP)
    expect.close(report["losses"][0], np.asarray(losses[0]), "the loss", rtol=1e-3, given=given,
                 hint="jax.value_and_grad(loss)(params, x, y)")  # fmt: skip


@points(1)
def the_optimizer_remembers(submission: Submission) -> None:
    """`make_step` gives a step that hands the optimiser's state on."""
    report, params, losses = _taken(submission)
    for number in (1, 2):
        given = f"optax.sgd with momentum, batch {number + 1}"
        same_tree(report["params"][number], params[number], "params", given=given,
                  hint="return the state that optimizer.update gives: the momentum is in it")  # fmt: skip
        expect.close(report["losses"][number], np.asarray(losses[number]), "the loss", rtol=1e-3, given=given)


@points(1)
def buffers_are_donated(submission: Submission) -> None:
    """`make_step` gives a step that writes its results where parameters and state were."""
    report, _, _ = _taken(submission)
    for kept in report["kept"]:
        left = expect.mapping(kept, ("params", "state"), "what is left")
        for name in ("params", "state"):
            count = expect.number(left[name], "arrays")
            expect.true(count == 0, f"`{name}` is not donated", expected="none of its arrays is left after the step",
                        got=f"{count:.0f} are", hint="jax.jit(step, donate_argnums=(0, 1))")  # fmt: skip


@points(2)
def trained_reads_unseen_digits(submission: Submission) -> None:
    """`trained` reads at least 95 % of the digits that it was not trained on."""
    data = digits()
    hint = "params of mlhood.jaxlab.training.cnn, after a few epochs over x_train; labels belong to their images"
    params = _network(submission.value("trained"))
    right = float((reference.digit_logits(params, data.test_images).argmax(axis=1) == data.test_labels).mean())
    expect.true(right >= GOOD_ACCURACY, "`trained` reads too few digits", expected=f"at least {GOOD_ACCURACY:.0%}",
                got=f"{right:.1%}", given="the held-out digits", hint=hint)  # fmt: skip


def _network(trained: object) -> dict[str, np.ndarray]:
    """The arrays of the digits' network, of the shapes that it has."""
    shapes = reference.DIGIT_SHAPES
    found = expect.mapping(trained, tuple(shapes), "`trained`", hint="it starts with cnn.init(seed)")
    return {name: expect.array(found[name], shape, f'trained["{name}"]') for name, shape in shapes.items()}


TASKS = (
    Task(
        "P5.8",
        "Training",
        checks=(
            cross_entropy_is_a_mean,
            a_step_goes_down_the_gradient,
            the_optimizer_remembers,
            buffers_are_donated,
            trained_reads_unseen_digits,
        ),
        seconds=300.0,
        forbidden=("mlhood.jaxlab.training.train_loop",),
    ),
)
