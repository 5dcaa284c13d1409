"""Checks of P5.7: a gradient for each example, and their mean with the long ones cut."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes:"
INPUTS, HIDDEN, CLASSES = 3, 4, 5
MAP = "jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])"


def _draw(submission: Submission, examples: int) -> tuple[reference.Tree, np.ndarray, np.ndarray]:
    sizes = {"hidden": (INPUTS, HIDDEN), "out": (HIDDEN, CLASSES)}
    params = {name: {"w": submission.normal(*size), "b": submission.normal(size[1])} for name, size in sizes.items()}
    labels = submission.rng.integers(0, CLASSES, examples).astype(np.int32)
    return params, submission.normal(examples, INPUTS), labels


def same_tree(got: object, want: reference.Tree, what: str, **parts: object) -> None:
    """Fail unless a tree of dictionaries has these arrays."""
    found = expect.mapping(got, tuple(want), what, **parts)
    for name, value in want.items():
        inner = f'{what}["{name}"]'
        if isinstance(value, dict):
            same_tree(found[name], value, inner, **parts)
        else:
            expect.close(found[name], np.asarray(value), inner, rtol=1e-3, atol=1e-4, **parts)  # pyright: ignore[reportArgumentType]


@points(1)
def examples_lead_the_tree(submission: Submission) -> None:
    """`per_example` gives a tree like the parameters, with an axis more for the examples."""
    params, x, y = _draw(submission, 6)
    given = f"x {x.shape}"
    with expect.case(given, MAP):
        got = submission.call(PROBES + "per_example", submission.value("per_example"), params, x, y)
    for outer, inner in (("hidden", "w"), ("out", "b")):
        part = expect.mapping(expect.mapping(got, (outer,), "the tree", given=given)[outer], (inner,), f'["{outer}"]')
        expect.array(part[inner], (6, *params[outer][inner].shape), f'["{outer}"]["{inner}"]', given=given, hint=MAP)


@points(2)
def examples_have_their_own_gradient(submission: Submission) -> None:
    """`per_example` gives each example's own gradient, as of a batch of one."""
    for examples in (6, 1):
        params, x, y = _draw(submission, examples)
        given = f"x {x.shape}"
        with expect.case(given, MAP):
            got = submission.call(PROBES + "per_example", submission.value("per_example"), params, x, y)
        same_tree(got, reference.example_gradients(params, x, y), "the tree", given=given, hint=MAP)


@points(1)
def examples_are_not_looped_over(submission: Submission) -> None:
    """`per_example` is a program of the same length for many examples as for few."""
    sizes = []
    for examples in (3, 9):
        params, x, y = _draw(submission, examples)
        with expect.case(f"x {x.shape}", MAP):
            told = submission.call(PROBES + "equations", submission.value("per_example"), params, x, y)
        sizes.append(expect.number(told, "the number of equations"))
    few, many = sizes
    expect.true(few > 1, "`per_example` works nothing out", expected="equations in its jaxpr", got=f"{few:.0f}",
                hint=MAP)  # fmt: skip
    expect.true(few == many, "the program grows with the number of examples", expected=f"{few:.0f} equations for 9",
                got=f"{many:.0f}", hint=MAP)  # fmt: skip


def _gradients(submission: Submission, lengths: np.ndarray) -> reference.Tree:
    """A tree of gradients of these norms, one for each example."""
    shapes = {"hidden": {"w": (3, 4), "b": (4,)}, "out": {"w": (4, 2)}}
    drawn = reference.mapped(lambda shape: submission.normal(len(lengths), *shape), shapes)
    factors = (lengths / reference.norms(drawn)).astype(np.float32)
    return reference.mapped(lambda leaf: leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1)), drawn)


def _clipped(submission: Submission, lengths: np.ndarray, limit: float, hint: str) -> None:
    gradients = _gradients(submission, lengths)
    shown = ", ".join(f"{length:.2f}" for length in lengths)
    given = f"gradients of the norms {shown}, limit {limit:g}"
    factors = np.minimum(1, limit / reference.norms(gradients))
    want = reference.mapped(lambda leaf: np.einsum("n...,n->...", leaf, factors) / len(factors), gradients)
    with expect.case(given, hint):
        got = submission.call(PROBES + "clipped", submission.value("clipped_mean"), gradients, limit)
    same_tree(got, want, "the mean", given=given, hint=hint)


@points(1)
def long_gradients_are_shortened(submission: Submission) -> None:
    """`clipped_mean` scales each gradient that is too long, over the whole tree, to the limit."""
    hint = "the norm is that of all leaves together: the root of the sum of all squares of one example"
    _clipped(submission, 2 + 3 * submission.rng.random(4), 1.0, hint)


@points(1)
def short_gradients_stay(submission: Submission) -> None:
    """`clipped_mean` leaves gradients that are short enough as they are."""
    hint = "min(1, limit / norm) of each example: nothing is made longer"
    _clipped(submission, 0.2 + 0.7 * submission.rng.random(5), 1.0, hint)


TASKS = (
    Task(
        "P5.7",
        "One gradient an example",
        checks=(
            examples_lead_the_tree,
            examples_have_their_own_gradient,
            examples_are_not_looped_over,
            long_gradients_are_shortened,
            short_gradients_stay,
        ),
        forbidden=("mlhood.jaxlab.training.per_example",),
    ),
)
