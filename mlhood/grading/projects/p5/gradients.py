"""Checks of P5.7: one gradient per example, and their mean with long ones clipped."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes:"
INPUTS, HIDDEN, CLASSES = 3, 4, 5
VMAP = "jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x[:, None], y[:, None])"


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
            answer = submission.call(PROBES + "count_equations", submission.value("per_example"), params, x, y)
        sizes.append(expect.number(answer, "the number of equations"))
    few, many = sizes
    with expect.case(None, VMAP):
        what = "`per_example` computes nothing"
        expect.true(few > 1, what, expected="equations in its jaxpr", got=f"{few:.0f}")
        what = "the program grows with the number of examples"
        expect.true(few == many, what, expected=f"{few:.0f} equations for 9", got=f"{many:.0f}")


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
)
