"""Checks of P5.7 and P5.8: per-example gradients, a loss, a training step with optax, and a trained network."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
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
RATE, MOMENTUM = 0.125, 0.75
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
STEP = (
    "value and gradient at the old weights; the optimiser makes updates of the gradient; these are added to the weights"
)


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
            expect.close(tree[name], np.asarray(value), path, rtol=1e-3, atol=1e-4, dtype=np.float32, **parts)  # pyright: ignore[reportArgumentType]


@points(0.5)
def examples_lead_the_tree(submission: Submission) -> None:
    """`per_example` returns a tree like the parameters, with a {{ {0: "leading", -1: "last", 1: "second"}[example_axis] }} axis for the examples."""  # noqa: E501
    params, x, y = _draw(submission, 6)
    with expect.case(f"x {x.shape}", VMAP):
        got = submission.probe(PROBES + "per_example", "per_example", params, x, y)
        for outer, inner in (("hidden", "w"), ("out", "b")):
            part = expect.mapping(got, (outer,), "the tree of `per_example`")[outer]
            part = expect.mapping(part, (inner,), f'["{outer}"]')
            shape = _moved(submission, np.empty((6, *params[outer][inner].shape))).shape
            gradients = expect.array(part[inner], shape, f'["{outer}"]["{inner}"]')
            expect.true(gradients.std() > 0, "`per_example` computes nothing", got=gradients.ravel()[:4])


@points(1)
def examples_have_their_own_gradient(submission: Submission) -> None:
    """`per_example` returns each example's own gradient, as of a batch of one."""
    for examples in (6, 1):
        params, x, y = _draw(submission, examples)
        with expect.case(f"x {x.shape}", VMAP):
            got = submission.probe(PROBES + "per_example", "per_example", params, x, y)
            want = reference.tree_map(partial(_moved, submission), reference.example_gradients(params, x, y))
            check_tree(got, want, "the tree of `per_example`")


def _moved(submission: Submission, gradients: np.ndarray) -> np.ndarray:
    """Return gradients [N, ...] with the axis of the examples where this variant has it."""
    return np.ascontiguousarray(np.moveaxis(gradients, 0, submission.parameters.example_axis))


@points(1)
def examples_are_not_looped_over(submission: Submission) -> None:
    """`per_example` traces to a program without a loop, of the same length for many examples as for few."""
    programs: list[tuple[Any, list[Any]]] = []
    results: list[Any] = []
    for params, x, y in (_draw(submission, examples) for examples in (6, 9)):
        with expect.case(f"x {x.shape}", VMAP):
            program = submission.probe(PROBES + "per_example_program", "per_example", params, x, y)
            programs.append((program, [reference.leaves([params, x, y])]))
            results.append(submission.probe(PROBES + "per_example", "per_example", params, x, y))  # right or not
    reports = run_programs(submission, *programs)
    with expect.case(None, VMAP):
        for report, own in zip(reports, results, strict=True):
            (got,), want = report["results"], reference.leaves(own)
            expect.equal(len(got), len(want), "the traced program returns a different number of arrays")
            for traced, direct in zip(got, want, strict=True):
                direct = expect.array(direct, traced.shape, "what `per_example` returns")
                expect.true(traced.size > 0 and traced.std() > 0, "`per_example` computes nothing", got=traced)
                expect.close(traced, direct, "the traced program", rtol=1e-3, atol=1e-4)
        few, many = (len(report["operations"]) for report in reports)
        what = "the program of `per_example` grows with the number of examples"
        expect.true(few == many, what, expected=f"{few} operations for 9", got=f"{many}")
        what, expected = "`per_example` loops over the examples", "one axis more for every operation, by jax.vmap"
        expect.true("while" not in reports[0]["operations"], what, expected=expected, got="the operation while")


def _draw_gradients(submission: Submission, norms: np.ndarray) -> reference.Tree:
    """Draw a tree of gradients with these norms, one for each example."""
    shapes = {"hidden": {"w": (3, 4), "b": (4,)}, "out": {"w": (4, 2), "filters": (2, 3, 2)}}
    tree = reference.tree_map(lambda shape: submission.normal(len(norms), *shape), shapes)
    factors = (norms / reference.norms(tree, submission.parameters.clip_norm)).astype(np.float32)
    return reference.tree_map(lambda leaf: leaf * factors.reshape(-1, *[1] * (leaf.ndim - 1)), tree)


def _check_clipping(submission: Submission, norms: np.ndarray, limit: float, hint: str) -> None:
    gradients = _draw_gradients(submission, norms)
    shown = ", ".join(f"{norm:.2f}" for norm in norms)
    factors = np.minimum(1, limit / np.maximum(reference.norms(gradients, submission.parameters.clip_norm), 1e-12))
    want = reference.tree_map(lambda leaf: np.einsum("n...,n->...", leaf, factors) / len(factors), gradients)
    with expect.case(f"gradients of norms {shown}, limit {limit:g}", hint):
        own = reference.tree_map(partial(_moved, submission), gradients)
        got = submission.probe(PROBES + "clipped", "clipped_mean", own, limit)
        check_tree(got, want, "the mean by `clipped_mean`")


@points(1)
def long_gradients_are_shortened(submission: Submission) -> None:
    """`clipped_mean` scales each gradient that is too long, over the whole tree, to the limit."""
    hint = "the norm of an example is over all leaves together; the mean is that of the clipped gradients"
    for examples, limit in ((4, 1.0), (7, 2.5), (4, 0.25)):
        _check_clipping(submission, limit * (2 + 3 * submission.rng.random(examples)), limit, hint)


@points(0.5)
def short_gradients_stay(submission: Submission) -> None:
    """`clipped_mean` leaves gradients within the limit unchanged, also beside longer ones."""
    hint = "no gradient becomes longer, and one of norm 0 remains 0"
    for examples, limit in ((7, 1.0), (4, 4.0)):
        _check_clipping(submission, limit * (0.2 + 0.7 * submission.rng.random(examples)), limit, hint)
    _check_clipping(submission, np.array([0.0, 0.5, 0.9, 0.2]), 1.0, hint)
    if submission.passed(long_gradients_are_shortened):
        hint = "each example has its own factor: the long ones are shortened, and the short ones beside them stay"
        _check_clipping(submission, np.array([0.3, 2, 0.8, 5]), 1.0, hint)


P5_7 = Task(
    "P5.7",
    "Per-example gradients",
    minutes=25,
    builds_on=("P5.4",),
    varies=(EXAMPLE_AXIS, CLIP_NORM),
    libraries=JAX,
)


@points(1)
def cross_entropy_is_a_mean(submission: Submission) -> None:
    """`cross_entropy` is the mean of -log softmax at the {{ "smoothed " if smoothing else "" }}labels, however large the logits."""  # noqa: E501
    smoothing = submission.parameters.smoothing
    place = "the sum over its targets" if smoothing else "at its label"
    hint = f"one number for each row, {place}, and their mean; the logarithm of a softmax that is 0 is infinite"
    for examples, classes, spread in ((1, 10, 2), (7, 10, 2), (4, 5, 2), (6, 10, 400), (3, 4, 1e5)):
        logits = np.float32(spread) * submission.normal(examples, classes)
        labels = submission.rng.integers(0, classes, examples)
        with expect.case(f"logits {logits.shape} from {logits.min():.0f} to {logits.max():.0f}", hint):
            got = submission.probe(PROBES + "run", "cross_entropy", [logits, labels])
            want = np.asarray(reference.cross_entropy(logits, labels, smoothing))
            expect.close(got, want, "what `cross_entropy` returns", dtype=np.float32)


def _steps(submission: Submission) -> tuple[dict[str, Any], list[dict[str, np.ndarray]], list[float]]:
    """Return the record of three steps, and the right parameters after and losses before each."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    batches = [(submission.normal(8, 4), submission.normal(8, 3)) for _ in range(3)]
    with expect.case("optax.sgd with momentum, three batches", STEP):
        names, arguments = _results(submission), (params, [list(pair) for pair in batches], RATE, MOMENTUM)
        keys = ("params", "losses") + (("norms",) if "norm" in names else ())
        report = dict(submission.probe(PROBES + "training_steps", "make_step", *arguments, names, keys=keys))
    complete = all(isinstance(part, list) and len(part) == len(batches) for part in report.values())
    expect.true(complete, "`step` of `make_step` did not process three batches")
    gradient = reference.square_loss_gradient(params, *batches[0])
    report["norm"] = np.sqrt(sum((part**2).sum() for part in gradient.values()))  # of the first
    return report, *reference.momentum_steps(params, batches, RATE, MOMENTUM)


def _results(submission: Submission) -> list[str]:
    """Return the names of the results of a step, in order."""
    return submission.parameters.step_returns.split(", ")


@points(1)
def a_step_goes_down_the_gradient(submission: Submission) -> None:
    """`make_step` returns a step that returns new parameters and the loss before it."""
    report, params, losses = _steps(submission)
    given, hint = "optax.sgd, the first batch", "the loss of this batch, with the weights before the step"
    check_tree(report["params"][0], params[0], "params of `make_step`", given=given, hint=STEP)
    what = "the loss of `make_step`"
    expect.close(report["losses"][0], np.asarray(losses[0]), what, rtol=1e-3, given=given, hint=hint)
    for norm in report.get("norms", [])[:1]:
        hint = "the root of the sum of all squares in the gradient, that of every array"
        expect.close(norm, report["norm"], "the norm of `make_step`", rtol=1e-3, given=given, hint=hint)
    if submission.passed(the_optimizer_remembers):
        _check_adamw_step(submission)


def _check_adamw_step(submission: Submission) -> None:
    """Check a step of AdamW, whose first update is the sign of the gradient plus a part of the weights.

    (I. Loshchilov and F. Hutter, "Decoupled weight decay regularization", ICLR 2019.)
    """
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    x, y = submission.normal(8, 4), submission.normal(8, 3)
    gradient = reference.square_loss_gradient(params, x, y)
    want = {name: value - RATE * (np.sign(gradient[name]) + value) for name, value in params.items()}
    hint = "some optimisers need the weights, too: `update` has an argument for them"
    with expect.case("optax.adamw, whose updates depend on the weights", hint):
        got = submission.probe(PROBES + "adamw_step", "make_step", params, x, y, RATE, _results(submission))
        check_tree(got, want, "params of `make_step`")


@points(0.5)
def the_optimizer_remembers(submission: Submission) -> None:
    """`make_step` returns a step that returns the optimiser's new state."""
    report, params, losses = _steps(submission)
    hint = "the optimiser's new state contains the momentum: return the new one"
    for index in (1, 2):
        given = f"optax.sgd with momentum, batch {index + 1}"
        check_tree(report["params"][index], params[index], "params of `make_step`", given=given, hint=hint)
        what = "the loss of `make_step`"
        expect.close(report["losses"][index], np.asarray(losses[index]), what, rtol=1e-3, given=given)


@points(0.5)
def buffers_are_donated(submission: Submission) -> None:
    """`make_step` returns a compiled step that donates the buffers of parameters and state."""
    params = {"w": submission.normal(4, 3), "b": submission.normal(3)}
    x, y = submission.normal(8, 4), submission.normal(8, 3)
    hint = "is the step compiled? jax.jit has an argument that says which of the function's arguments are donated"
    with expect.case("optax.sgd with momentum", hint):
        program = submission.probe(PROBES + "step_program", "make_step", params, x, y, RATE, _results(submission))
        arrays = reference.leaves([params, {name: np.zeros_like(value) for name, value in params.items()}, x, y])
        (report,) = run_programs(submission, (program, [arrays]))
        count, ((results,),) = len(params), [report["results"]]
        expect.equal(len(results), 2 * count, "a step of `make_step` returns a different number of arrays")
        after, _ = reference.momentum_steps(params, [(x, y)], RATE, MOMENTUM)
        for got, want in zip(results, reference.leaves(after[0]), strict=False):
            expect.resembles(got, want, "params after a step", hint=STEP)
        for name, arguments in (("params", range(count)), ("state", range(count, 2 * count))):
            live = [i for i in arguments if str(i) not in report["donated"]]
            what, expected = f"`{name}` is not donated", "all of its arrays are donated"
            expect.true(not live, what, expected=expected, got=f"{len(live)} of {count} are not")


@points(1)
def losses_are_those_of_the_steps(submission: Submission) -> None:
    """`train` trains on the digits that it is given, with `make_step`, and returns the losses of its steps."""
    # `make_step` is replaced by one whose losses tell the weights, the data, the loss and the number of the step.
    rng, (row, column) = submission.rng, (int(place) for place in submission.rng.integers(0, 32, 2))
    images = rng.standard_normal((200, 1, 32, 32)).astype(np.float32)
    labels = rng.integers(0, 10, len(images)).astype(np.int64)
    images[:, 0, row, column] = labels
    point = [{name: submission.normal(*shape) / 10 for name, shape in reference.DIGIT_SHAPES.items()}]
    point += [submission.normal(3, 1, 32, 32), rng.integers(0, 10, 3)]
    start = submission.call("mlhood.jaxlab.training.cnn:init", 0)["fc.weight"]
    scales, direction = rng.uniform(0.5, 2, MOST_STEPS + 1), start * rng.uniform(0.5, 2, start.shape)
    factors, ratios = rng.uniform(1, 2, MOST_STEPS) / np.arange(1, MOST_STEPS + 1), scales[1:] / scales[:-1]
    drawn = {"point": point, "pixel": [row, column], "weight": direction, "factors": factors, "ratios": ratios}
    with expect.case(f"x {images.shape} and labels {labels.shape}, drawn at random"):
        keys = ("losses", "numbers", "product", "broken")
        arguments = images, labels, _results(submission), drawn
        report = submission.probe(PROBES + "trained_by", "train", *arguments, keys=keys)
        losses = expect.sequence(report["losses"], list, "the second result of `train`")
        what, hint = "the losses of `train` are not Python's numbers", "float(value) makes a number of an array"
        got = expect.format_value(losses[:1])
        expect.true(report["numbers"] is True, what, expected="a list of numbers, not of arrays", got=got, hint=hint)
        got = np.array([expect.number(loss, "the losses of `train`") for loss in losses])
        what, hint = "`train` takes no step", "make_step(optimizer, loss) gives the step; call it for each batch"
        expect.true(0 < len(got) < MOST_STEPS, what, expected="steps of `make_step`", hint=hint)
        product = float(np.vdot(start, direction)) * scales / scales[0]
        _check_losses(got, factors[: len(got)], product[: len(got)], _own_loss(submission, point))
        what, expected = "the losses of `train` are not those of all of its steps", "one loss for each step"
        last = expect.number(report["product"], "a product with the weights of `train`")
        steps = np.isclose(last, product, rtol=1e-3)  # after which the weights are those that it returns
        expect.true(bool(steps[len(got)] or not steps.any()), what, expected=expected, got=f"{len(got)} losses")


def _own_loss(submission: Submission, point: list[Any]) -> float | None:
    """Return the notebook's `training_loss` at a point, None if it has none."""
    try:
        loss = submission.value("training_loss")
    except expect.CheckFailed:
        return None
    return expect.number(submission.call(PROBES + "run", loss, point), "what `training_loss` returns")


def _check_losses(got: np.ndarray, factors: np.ndarray, product: np.ndarray, own: float | None) -> None:
    """Check that losses are the factors times the own loss, plus the product with the weights (`probes.trained_by`)."""
    what, expected = "`train` takes steps on other data than its arguments", "batches of x, and of y with the same rows"
    strange = int((np.abs(got) > STRANGE / 2).sum())
    expect.true(not strange, what, expected=expected, got=f"{strange} of {len(got)} batches are not")
    if own is not None and np.allclose(own * factors + product, got, rtol=1e-3):
        return
    loss, rest = np.linalg.lstsq(np.stack([factors, product], 1), got, rcond=None)[0]
    what, hint = "the losses of `train` are not those of its steps", "each step returns one: keep all, in order"
    right = np.allclose(loss * factors + rest * product, got, rtol=1e-3, atol=1e-3)
    expect.true(right, what, expected="the loss that each step returns", got=f"{len(got)} losses", hint=hint)
    what, hint = "the first step of `train` has other weights than `cnn.init(0)`", "start with those of cnn.init(0)"
    expect.true(bool(np.isclose(rest, 1, rtol=1e-2)), what, expected="cnn.init(0)", hint=hint)
    what, hint = "the steps of `train` do not minimise `training_loss`", "make_step(optimizer, training_loss)"
    same = own is None or bool(np.isclose(loss, own, rtol=1e-2))
    expect.true(same, what, expected=f"{own:.6g} at drawn weights", got=f"{loss:.6g}", hint=hint)


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
