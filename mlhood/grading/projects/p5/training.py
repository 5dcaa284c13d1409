"""Checks of P5.7 and P5.8: per-example gradients, a loss, a training step with optax, and a trained network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import JAX
from mlhood.grading.projects.p5.programs import STRANGE, run_programs
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.training import cnn
from mlhood.models import digits

INPUTS, HIDDEN, CLASSES = 3, 4, 5
VMAP = "write the gradient of one example, a batch of one; then map it over the examples, but not over params"
PROBES = "mlhood.grading.projects.p5.probes:"
CLOSE: dict[str, Any] = {"typed": True, "rtol": 1e-3, "atol": 1e-4}
MOST_STEPS = 10_000  # of `train`, for 200 images
# where `per_example` has one more axis
EXAMPLE_AXIS = Parameter("example_axis", (0, -1, 1))
CLIP_NORM = Parameter("clip_norm", ("euclidean", "sum"))  # over the whole tree
# the results of a step, in order; `norm` is that of the gradient
STEP_RETURNS = Parameter(
    "step_returns",
    (
        "params, state, value",
        "value, norm, params, state",
    ),
)
GOOD_ACCURACY = 0.94


def _draw(submission: Submission, examples: int) -> tuple[reference.Tree, np.ndarray, np.ndarray]:
    sizes = {"hidden": (INPUTS, HIDDEN), "out": (HIDDEN, CLASSES)}
    params = {name: {"w": submission.normal(*size), "b": submission.normal(size[1])} for name, size in sizes.items()}
    labels = submission.rng.integers(0, CLASSES, examples).astype(np.int32)
    return params, submission.normal(examples, INPUTS), labels


def _same_shapes(got: Any, want: Any, what: str) -> None:
    """Fail unless a tree has the arrays of another one by their shapes, and these are not constant."""
    if isinstance(want, dict):
        tree = expect.mapping(got, tuple(want), what)
        for name, part in want.items():
            _same_shapes(tree[name], part, f'{what}["{name}"]')
    else:
        gradients = expect.array(got, want.shape, what)
        expect.true(gradients.std() > 0, "`per_example` computes nothing", got=gradients.ravel()[:4])


@compared(0.5, "per_example", hint=VMAP, probe=PROBES + "per_example", compare=_same_shapes)
def examples_lead_the_tree(submission: Submission) -> Iterator[Arguments]:
    """`per_example` returns a tree like the parameters, with a {{ {0: "leading", -1: "last", 1: "second"}[example_axis] }} axis for the examples."""  # noqa: E501
    yield _draw(submission, 6)


@compared(1, "per_example", hint=VMAP, probe=PROBES + "per_example", **CLOSE)
def examples_have_their_own_gradient(submission: Submission) -> Iterator[Arguments]:
    """`per_example` returns each example's own gradient, as of a batch of one."""
    for examples in (6, 1):
        yield _draw(submission, examples)


def _moved(submission: Submission, gradients: np.ndarray) -> np.ndarray:
    """Return gradients [N, ...] with the axis of the examples where this variant has it."""
    return np.ascontiguousarray(np.moveaxis(gradients, 0, submission.parameters.example_axis))


@points(1)
def examples_are_not_looped_over(submission: Submission) -> None:
    """`per_example` traces to a program without a loop, of the same length for many examples as for few."""
    lengths = []
    for examples in (6, 9):
        params, x, y = _draw(submission, examples)
        with expect.case(f"x {x.shape}", VMAP):
            program = submission.probe(PROBES + "per_example_program", "per_example", params, x, y)
            own = reference.leaves(submission.probe(PROBES + "per_example", "per_example", params, x, y))
            (report,) = run_programs(submission, (program, [reference.leaves([params, x, y])]))
            (results,) = report["results"]
            expect.equal(len(results), len(own), "the traced program returns a different number of arrays")
            for traced, direct in zip(results, own, strict=True):  # right or not
                expect.true(traced.size > 0 and traced.std() > 0, "`per_example` computes nothing", got=traced)
                expect.close(direct, traced, "what `per_example` returns", rtol=1e-3, atol=1e-4)
            what, expected = "`per_example` loops over the examples", "one axis more for every operation, by jax.vmap"
            expect.true("while" not in report["operations"], what, expected=expected, got="the operation while")
            lengths.append(len(report["operations"]))
    what = "the program of `per_example` grows with the number of examples"
    expect.equal(lengths[1], lengths[0], what, hint=VMAP)


def _gradients(submission: Submission, norms: np.ndarray, limit: float) -> Arguments:
    """Draw gradients of these norms, one for each example, and return them with the limit."""
    shapes = {"hidden": {"w": (3, 4), "b": (4,)}, "out": {"w": (4, 2), "filters": (2, 3, 2)}}
    tree = reference.tree_map(lambda shape: submission.normal(len(norms), *shape), shapes)
    flat = np.hstack([leaf.reshape(len(leaf), -1) for leaf in reference.leaves(tree)])
    factors = norms / np.linalg.norm(flat, 2 if submission.parameters.clip_norm == "euclidean" else 1, axis=1)

    def scaled(leaf: np.ndarray) -> np.ndarray:
        return _moved(submission, np.einsum("n...,n->n...", leaf, factors.astype(np.float32)))

    return [reference.tree_map(scaled, tree)], [limit]


@compared(
    1,
    "clipped_mean",
    probe=PROBES + "run",
    hint="the norm of an example is over all leaves together; the mean is that of the clipped gradients",
    **CLOSE,
)
def long_gradients_are_shortened(submission: Submission) -> Iterator[Arguments]:
    """`clipped_mean` scales each gradient that is too long, over the whole tree, to the limit."""
    for examples, limit in ((4, 1.0), (7, 2.5), (4, 0.25)):
        yield _gradients(submission, limit * (2 + 3 * submission.rng.random(examples)), limit)


@compared(
    0.5,
    "clipped_mean",
    probe=PROBES + "run",
    hint="each example has its own factor: no gradient becomes longer, one of norm 0 remains 0, and short ones beside "
    "long ones stay",
    **CLOSE,
)
def short_gradients_stay(submission: Submission) -> Iterator[Arguments]:
    """`clipped_mean` leaves gradients within the limit unchanged, also beside longer ones."""
    for examples, limit in ((7, 1.0), (4, 4.0)):
        yield _gradients(submission, limit * (0.2 + 0.7 * submission.rng.random(examples)), limit)
    yield _gradients(submission, np.array([0.0, 0.5, 0.9, 0.2]), 1.0)
    if submission.passed(long_gradients_are_shortened):
        yield _gradients(submission, np.array([0.3, 2, 0.8, 5]), 1.0)


P5_7 = Task(
    "P5.7",
    "Per-example gradients",
    minutes=25,
    builds_on=("P5.4",),
    varies=(EXAMPLE_AXIS, CLIP_NORM),
    libraries=JAX,
)


@compared(
    1,
    "cross_entropy",
    probe=PROBES + "run",
    hint="one number for each row, {{ 'the sum over its targets' if smoothing else 'at its label' }}, and their mean; "
    "the logarithm of a softmax that is 0 is infinite",
)
def cross_entropy_is_a_mean(submission: Submission) -> Iterator[Arguments]:
    """`cross_entropy` is the mean of -log softmax at the {{ "smoothed " if smoothing else "" }}labels, however large the logits."""  # noqa: E501
    for examples, classes, spread in ((1, 10, 2), (7, 10, 2), (4, 5, 2), (6, 10, 400), (3, 4, 1e5)):
        logits = np.float32(spread) * submission.normal(examples, classes)
        yield ([logits, submission.rng.integers(0, classes, examples)],)


def _steps(submission: Submission, optimizer: str, count: int, **options: float) -> Arguments:
    """Draw so many batches for steps of an optimiser (see `probes.training_steps`)."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    batches = [[submission.normal(8, 4), submission.normal(8, 3)] for _ in range(count)]
    return optimizer, options, params, batches, _results(submission)


def _results(submission: Submission) -> list[str]:
    """Return the names of the results of a step, in order."""
    return submission.parameters.step_returns.split(", ")


@compared(
    1,
    "make_step",
    probe=PROBES + "training_steps",
    hint="value and gradient at the old weights; the optimiser makes updates of the gradient, for which some need the "
    "weights, too (`update` has an argument for them); these are added to the weights",
    **CLOSE,
)
def a_step_goes_down_the_gradient(submission: Submission) -> Iterator[Arguments]:
    """`make_step` returns a step that returns new parameters and the loss before it."""
    yield _steps(submission, "sgd", 1, learning_rate=0.125, momentum=0.75)
    if submission.passed(the_optimizer_remembers):
        yield _steps(submission, "adamw", 1, learning_rate=0.125, weight_decay=1.0)


@compared(
    0.5,
    "make_step",
    probe=PROBES + "training_steps",
    hint="the optimiser's new state contains the momentum: return the new one",
    **CLOSE,
)
def the_optimizer_remembers(submission: Submission) -> Iterator[Arguments]:
    """`make_step` returns a step that returns the optimiser's new state."""
    yield _steps(submission, "sgd", 3, learning_rate=0.125, momentum=0.75)


@points(0.5, solved=True)
def buffers_are_donated(submission: Submission) -> None:
    """`make_step` returns a compiled step that donates the buffers of parameters and state."""
    *_, params, batches, names = arguments = _steps(submission, "sgd", 1, learning_rate=0.125, momentum=0.75)
    after = submission.solution("make_step", *arguments, probe=PROBES + "training_steps")["params"]
    hint = "is the step compiled? jax.jit has an argument that says which of the function's arguments are donated"
    with expect.case("optax.sgd with momentum", hint):
        program = submission.probe(PROBES + "step_program", "make_step", params, *batches[0], names)
        arrays = reference.leaves([params, {name: np.zeros_like(value) for name, value in params.items()}, *batches])
        (report,) = run_programs(submission, (program, [arrays]))
        count, ((results,),) = len(params), [report["results"]]
        expect.equal(len(results), 2 * count, "a step of `make_step` returns a different number of arrays")
        for got, want in zip(results, reference.leaves(after), strict=False):
            expect.resembles(got, want, "params after a step")
        for name, places in (("params", range(count)), ("state", range(count, 2 * count))):
            live = [i for i in places if str(i) not in report["donated"]]
            what, expected = f"`{name}` is not donated", "all of its arrays are donated"
            expect.true(not live, what, expected=expected, got=f"{len(live)} of {count} are not")


@points(1)
def losses_are_those_of_the_steps(submission: Submission) -> None:
    """`train` trains on the digits that it is given, with `make_step`, and returns the losses of its steps."""
    # `make_step` is replaced by one whose steps return drawn losses and biases.
    rng, (row, column) = submission.rng, (int(place) for place in submission.rng.integers(0, 32, 2))
    images = rng.standard_normal((200, 1, 32, 32)).astype(np.float32)
    labels = rng.integers(0, 10, len(images)).astype(np.int64)
    images[:, 0, row, column] = labels
    drawn = rng.uniform(1, 2, MOST_STEPS)
    with expect.case(f"x {images.shape} and labels {labels.shape}, drawn at random"):
        arguments = images, labels, _results(submission), [row, column], drawn
        keys = ("losses", "bias", "broken")
        report = submission.probe(PROBES + "trained_by", "train", *arguments, keys=keys)
        losses = expect.sequence(report["losses"], list, "the second result of `train`")
        got, count = np.array([expect.number(loss, "the losses of `train`") for loss in losses]), len(losses)
        what, hint = "`train` takes no step", "make_step(optimizer, loss) gives the step; call it for each batch"
        expect.true(0 < count < MOST_STEPS, what, expected="steps of `make_step`", hint=hint)
        what, expected = "`train` takes steps on other data than its arguments", "batches of x, and the same rows of y"
        strange = int((np.abs(got) > STRANGE / 2).sum())
        expect.true(not strange, what, expected=expected, got=f"{strange} of {count} batches are not")
        bias = expect.number(report["bias"], "a bias that `train` returns")
        right = np.allclose(got, drawn[:count], rtol=1e-4) and np.isclose(bias, drawn[count - 1], rtol=1e-4)
        what, hint = "the losses of `train` are not those of its steps", "each step returns one: keep all, in order"
        expect.true(bool(right), what, expected="the loss that each step returns", got=f"{count} losses", hint=hint)


@points(1)
def trained_reads_unseen_digits(submission: Submission) -> None:
    """`train` returns weights that classify at least 94% of unseen digits correctly, whatever their labels are."""
    data, order = digits(), submission.rng.permutation(10)
    given = f"the digits of the notebook, each of them renamed: 0 to 9 are now {', '.join(map(str, order))}"
    with expect.case(
        given, "a few epochs over x suffice, with images and labels shuffled alike; start with cnn.init(0)"
    ):
        images, labels = data.train_images, order[data.train_labels]
        params = submission.probe(PROBES + "trained", "train", images, labels, _results(submission))
        _check_reads(params, data.test_images, order[data.test_labels])


def _check_reads(trained: object, images: np.ndarray, labels: np.ndarray) -> None:
    """Check that a network reads digits that it has not seen."""
    shapes = reference.DIGIT_SHAPES
    trained = expect.mapping(trained, tuple(shapes), "the weights of `train`")
    params = {name: expect.array(trained[name], shape, f'"{name}" of `train`') for name, shape in shapes.items()}
    accuracy = float((cnn.logits(params, images, no_jax).argmax(axis=1) == labels).mean())
    what = "the weights of `train` classify too few digits correctly"
    expected, got = f"at least {GOOD_ACCURACY:.0%} of {len(images)} unseen digits", f"{accuracy:.2%}"
    expect.true(accuracy >= GOOD_ACCURACY, what, expected=expected, got=got)


P5_8 = Task(
    "P5.8",
    "Training",
    seconds=300.0,
    minutes=30,
    builds_on=("P1.3", "P5.4"),
    varies=(STEP_RETURNS,),
    libraries=JAX,
)
