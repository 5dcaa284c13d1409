"""Checks of P5.7 and P5.8: per-example gradients, a loss, a training step with optax, and a trained network."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.models import digits

INPUTS, HIDDEN, CLASSES = 3, 4, 5
VMAP = "jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])"
PROBES = "mlhood.grading.projects.p5.probes:"
RATE, MOMENTUM = 0.125, 0.75
GOOD_ACCURACY = 0.95
STEP = "updates, state = optimizer.update(gradients, state, params); params = optax.apply_updates(params, updates)"


def _draw(submission: Submission, examples: int) -> tuple[reference.Tree, np.ndarray, np.ndarray]:
    sizes = {"hidden": (INPUTS, HIDDEN), "out": (HIDDEN, CLASSES)}
    params = {name: {"w": submission.normal(*size), "b": submission.normal(size[1])} for name, size in sizes.items()}
    labels = submission.rng.integers(0, CLASSES, examples).astype(np.int32)
    return params, submission.normal(examples, INPUTS), labels


def check_tree(got: object, want: reference.Tree, what: str, **parts: object) -> None:
    """Fail unless a tree of dictionaries has these arrays."""
    tree = expect.mapping(got, tuple(want), what, **parts)
    for name, value in want.items():
        path = f'{what}["{name}"]'
        if isinstance(value, dict):
            check_tree(tree[name], value, path, **parts)
        else:
            expect.close(tree[name], np.asarray(value), path, rtol=1e-3, atol=1e-4, **parts)  # pyright: ignore[reportArgumentType]


@points(1)
def examples_lead_the_tree(submission: Submission) -> None:
    """`per_example` returns a tree like the parameters, with a leading axis for the examples."""
    params, x, y = _draw(submission, 6)
    with expect.case(f"x {x.shape}", VMAP):
        got = submission.call(PROBES + "per_example", submission.value("per_example"), params, x, y)
        for outer, inner in (("hidden", "w"), ("out", "b")):
            part = expect.mapping(expect.mapping(got, (outer,), "the tree")[outer], (inner,), f'["{outer}"]')
            expect.array(part[inner], (6, *params[outer][inner].shape), f'["{outer}"]["{inner}"]')


@points(2)
def examples_have_their_own_gradient(submission: Submission) -> None:
    """`per_example` returns each example's own gradient, as of a batch of one."""
    for examples in (6, 1):
        params, x, y = _draw(submission, examples)
        with expect.case(f"x {x.shape}", VMAP):
            got = submission.call(PROBES + "per_example", submission.value("per_example"), params, x, y)
            check_tree(got, reference.example_gradients(params, x, y), "the tree")


@points(1)
def examples_are_not_looped_over(submission: Submission) -> None:
    """`per_example` traces to a program of the same length for many examples as for few."""
    sizes = []
    for examples in (3, 9):
        params, x, y = _draw(submission, examples)
        with expect.case(f"x {x.shape}", VMAP):
            function = submission.value("per_example")
            answer = submission.call(PROBES + "count_equations", function, params, x, y)
            same = submission.call(PROBES + "per_example_both_ways", function, params, x, y)
        _check_same_program(same, x)
        sizes.append(expect.number(answer, "the number of equations"))
    few, many = sizes
    with expect.case(None, VMAP):
        what = "`per_example` computes nothing"
        expect.true(few > 1, what, expected="equations in its jaxpr", got=f"{few:.0f}")
        what = "the program grows with the number of examples"
        expect.true(few == many, what, expected=f"{few:.0f} equations for 9", got=f"{many:.0f}")


def _check_same_program(answer: object, x: np.ndarray) -> None:
    """Check that the program that was traced computes what the function does when it is not traced."""
    report = expect.mapping(answer, ("direct", "traced"), "the run of `per_example`")
    with expect.case(f"x {x.shape}", VMAP):
        direct, traced = _leaves(report["direct"]), _leaves(report["traced"])
        expect.equal(len(traced), len(direct), "the traced program returns another number of arrays")
        for once, again in zip(direct, traced, strict=True):
            expect.true(once.size > 0 and once.std() > 0, "`per_example` computes nothing", got=once)
            expect.close(again, once, "the traced program", rtol=1e-3, atol=1e-4)


def _leaves(value: object) -> list[np.ndarray]:
    leaves = [leaf for leaf in value if isinstance(leaf, np.ndarray)] if isinstance(value, list | tuple) else []
    expect.true(bool(leaves), "`per_example` returns no arrays", expected="a tree of gradients", got=value)
    return leaves


def _draw_gradients(submission: Submission, norms: np.ndarray) -> reference.Tree:
    """Draw a tree of gradients with these norms, one for each example."""
    shapes = {"hidden": {"w": (3, 4), "b": (4,)}, "out": {"w": (4, 2)}}
    tree = reference.tree_map(lambda shape: submission.normal(len(norms), *shape), shapes)
    factors = (norms / reference.norms(tree)).astype(np.float32)
    return reference.tree_map(lambda leaf: leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1)), tree)


def _check_clipping(submission: Submission, norms: np.ndarray, limit: float, hint: str) -> None:
    gradients = _draw_gradients(submission, norms)
    shown = ", ".join(f"{norm:.2f}" for norm in norms)
    factors = np.minimum(1, limit / reference.norms(gradients))
    want = reference.tree_map(lambda leaf: np.einsum("n...,n->...", leaf, factors) / len(factors), gradients)
    with expect.case(f"gradients of norms {shown}, limit {limit:g}", hint):
        got = submission.call(PROBES + "clipped", submission.value("clipped_mean"), gradients, limit)
        check_tree(got, want, "the mean")


@points(1)
def long_gradients_are_shortened(submission: Submission) -> None:
    """`clipped_mean` scales each gradient that is too long, over the whole tree, to the limit."""
    hint = "the norm is over all leaves together: the square root of the sum of all squares of one example"
    _check_clipping(submission, 2 + 3 * submission.rng.random(4), 1.0, hint)


@points(1)
def short_gradients_stay(submission: Submission) -> None:
    """`clipped_mean` leaves gradients within the limit unchanged."""
    hint = "scale each example by min(1, limit / norm): no gradient becomes longer"
    _check_clipping(submission, 0.2 + 0.7 * submission.rng.random(5), 1.0, hint)


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
    report, params, _ = _steps(submission)
    stepped = expect.mapping(report["params"][0], ("w",), "params", hint=STEP)["w"]
    expect.resembles(stepped, params[0]["w"], "params after a step", hint=STEP)
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
    shapes = reference.DIGIT_SHAPES
    trained = expect.mapping(submission.value("trained"), tuple(shapes), "`trained`", hint="start with cnn.init(seed)")
    params = {name: expect.array(trained[name], shape, f'trained["{name}"]') for name, shape in shapes.items()}
    noise = 0.05 * submission.normal(*data.test_images.shape)
    for images, needed, given in (
        (data.test_images, GOOD_ACCURACY, "the held-out digits"),
        (data.test_images + noise, GOOD_ACCURACY - 0.05, "the held-out digits with a little noise"),
    ):
        accuracy = float((reference.digit_logits(params, images).argmax(axis=1) == data.test_labels).mean())
        expect.true(
            accuracy >= needed,
            "`trained` classifies too few digits correctly",
            expected=f"at least {needed:.0%}",
            got=f"{accuracy:.1%}",
            given=given,
            hint="train mlhood.jaxlab.training.cnn for a few epochs over x_train; shuffle images and labels alike",
        )


TASKS = (
    Task(
        "P5.7",
        "Per-example gradients",
        checks=(
            examples_lead_the_tree,
            examples_have_their_own_gradient,
            examples_are_not_looped_over,
            long_gradients_are_shortened,
            short_gradients_stay,
        ),
        forbidden=("mlhood.jaxlab.training.per_example",),
    ),
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
