"""Checks of P5.8: a loss, a training step with optax, and a trained network."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.gradients import check_tree
from mlhood.models import digits

PROBES = "mlhood.grading.projects.p5.probes:"
RATE, MOMENTUM = 0.125, 0.75
GOOD_ACCURACY = 0.95
STEP = "updates, state = optimizer.update(gradients, state, params); params = optax.apply_updates(params, updates)"


@points(1)
def cross_entropy_is_a_mean(submission: Submission) -> None:
    """`cross_entropy` is the mean of -log softmax at the labels."""
    hint = "take -jax.nn.log_softmax(logits) at the label of each row, and the mean over the rows"
    for examples in (1, 7):
        logits, labels = 2 * submission.normal(examples, 10), submission.rng.integers(0, 10, examples)
        with expect.case(f"logits {logits.shape}", hint):
            got = submission.call(PROBES + "run", submission.value("cross_entropy"), [logits, labels])
            want = np.asarray(reference.cross_entropy(logits, labels))
            expect.close(got, want, "what `cross_entropy` returns")


def _steps(submission: Submission) -> tuple[dict[str, Any], list[dict[str, np.ndarray]], list[float]]:
    """Return the record of three steps, and the right parameters after and losses before each."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    batches = [(submission.normal(8, 4), submission.normal(8, 3)) for _ in range(3)]
    with expect.case("optax.sgd with momentum, three batches", STEP):
        function, pairs = submission.value("make_step"), [list(pair) for pair in batches]
        answer = submission.call(PROBES + "training_steps", function, params, pairs, RATE, MOMENTUM)
    report = dict(expect.mapping(answer, ("params", "losses", "live"), "the record of the steps"))
    complete = all(isinstance(part, list) and len(part) == len(batches) for part in report.values())
    expect.true(complete, "`step` did not process three batches")
    return report, *reference.momentum_steps(params, batches, RATE, MOMENTUM)


@points(1)
def a_step_goes_down_the_gradient(submission: Submission) -> None:
    """`make_step` returns a step that returns new parameters and the loss before it."""
    report, params, losses = _steps(submission)
    given, hint = "optax.sgd, the first batch", "jax.value_and_grad(loss)(params, x, y)"
    check_tree(report["params"][0], params[0], "params", given=given, hint=STEP)
    expect.close(report["losses"][0], np.asarray(losses[0]), "the loss", rtol=1e-3, given=given, hint=hint)


@points(1)
def the_optimizer_remembers(submission: Submission) -> None:
    """`make_step` returns a step that returns the optimiser's new state."""
    report, params, losses = _steps(submission)
    hint = "return the state that optimizer.update returns: it contains the momentum"
    for index in (1, 2):
        given = f"optax.sgd with momentum, batch {index + 1}"
        check_tree(report["params"][index], params[index], "params", given=given, hint=hint)
        expect.close(report["losses"][index], np.asarray(losses[index]), "the loss", rtol=1e-3, given=given)


@points(1)
def buffers_are_donated(submission: Submission) -> None:
    """`make_step` returns a step that donates the buffers of parameters and state."""
    report, _, _ = _steps(submission)
    hint = "jax.jit(step, donate_argnums=(0, 1))"
    for live in report["live"]:
        counts = expect.mapping(live, ("params", "state"), "the live arrays")
        for name in ("params", "state"):
            count = expect.number(counts[name], "the number of arrays")
            what, expected = f"`{name}` is not donated", "none of its old arrays is live after the step"
            expect.true(count == 0, what, expected=expected, got=f"{count:.0f} are", hint=hint)


@points(2)
def trained_reads_unseen_digits(submission: Submission) -> None:
    """`trained` classifies at least 95% of the held-out digits correctly."""
    data = digits()
    params = _network(submission.value("trained"))
    accuracy = float((reference.digit_logits(params, data.test_images).argmax(axis=1) == data.test_labels).mean())
    expect.true(
        accuracy >= GOOD_ACCURACY,
        "`trained` classifies too few digits correctly",
        expected=f"at least {GOOD_ACCURACY:.0%}",
        got=f"{accuracy:.1%}",
        given="the held-out digits",
        hint="train mlhood.jaxlab.training.cnn for a few epochs over x_train; shuffle images and labels alike",
    )


def _network(trained: object) -> dict[str, np.ndarray]:
    """Return the arrays of the digit network, checked for their shapes."""
    shapes = reference.DIGIT_SHAPES
    params = expect.mapping(trained, tuple(shapes), "`trained`", hint="start with cnn.init(seed)")
    return {name: expect.array(params[name], shape, f'trained["{name}"]') for name, shape in shapes.items()}


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
