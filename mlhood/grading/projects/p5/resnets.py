"""Checks of P5.1: ResNet as pure functions of a tree of arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Cases, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import JAX
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators import network, no_jax

PROBES = "mlhood.grading.projects.p5.probes:"
# the order of the axes of convolutions' weights in the tree
TREE_FILTERS = Parameter("tree_filters", ("FCHW", "HWCF", "CHWF", "HWFC"))
RESNET_RETURNS = Parameter("resnet_returns", ("logits", "probabilities", "log probabilities"))
BLOCK = "conv1, bn1, relu, conv2, bn2, then the sum with the shortcut, and relu of that"


def _tree(submission: Submission, state: reference.State, amount: int = 0) -> object:
    """Return the student's tree of a state, to whose JAX arrays an amount is added."""
    return submission.probe(PROBES + "raised_tree", "to_tree", state, amount, keys=("tree", "broken"))["tree"]


def _lookup(tree: object, name: str) -> object:
    """Return the subtree at a dotted name."""
    hint = 'params["layer1"]["0"]["conv1"]["weight"]: one dictionary for each part of a name'
    for part in name.split("."):
        tree = expect.mapping(tree, (part,), f"the tree on the way to `{name}`", hint=hint)[part]
    return tree


def _stored(submission: Submission, value: np.ndarray) -> np.ndarray:
    """Return an array of the state as this variant has it in the tree."""
    return reference.reordered(value, "FCHW", submission.parameters.tree_filters) if value.ndim == 4 else value


@points(0.5)
def names_become_a_tree(submission: Submission) -> None:
    """`to_tree` converts dotted names to nested dictionaries."""
    blocks = (reference.draw_block(submission.rng, *sizes, "stage.1.") for sizes in ((3, 3), (2, 4)))
    small = {  # none of them is a batch counter
        "scale.factor": np.asarray(submission.rng.random(), np.float32),
        "scale.offset": submission.normal(1),
        "scale.steps": submission.rng.integers(1, 9, 3).astype(np.int32),
        "scale.num_batches_tracked": np.array(submission.rng.integers(1, 9)),
    }
    for state in (reference.draw_state(submission.rng), *blocks, small):
        tree = _tree(submission, state)
        names = [name for name in state if not name.endswith("num_batches_tracked")]
        for name in names:
            given = f"the state with `{name}` {state[name].shape}"
            want = _stored(submission, state[name])
            expect.close(_lookup(tree, name), want, f"the tree at `{name}`", dtype=want.dtype, given=given)
        more = sorted(set(_names(tree)) - set(state))
        expect.true(not more, "the tree of `to_tree` has more than the state", got=", ".join(more[:3]))


@points(0.5)
def leaves_are_jax_arrays_alone(submission: Submission) -> None:
    """`to_tree` converts the leaves to JAX arrays and omits `num_batches_tracked`."""
    state, amount = reference.draw_block(submission.rng, 3, 5, "layer1.0."), int(submission.rng.integers(2, 9))
    tree, raised = _tree(submission, state), _tree(submission, state, amount)
    counters = [name for name in _names(tree) if "num_batches_tracked" in name]
    expect.true(isinstance(tree, dict) and bool(tree), "`to_tree` does not return a tree", got=tree)
    hint = "the batch counters are not parameters: they are integers, which have no derivative"
    what = "the tree still contains batch counters"
    expect.true(not counters, what, expected="none", got=", ".join(counters[:3]), hint=hint)
    what = "not all leaves are JAX arrays"
    expect.true(
        _is_raised(raised, tree, amount), what, expected="jax.Array", got="other types", hint="jnp.asarray(value)"
    )


def _is_raised(raised: object, tree: object, amount: int) -> bool:
    """Whether each leaf of a tree is that of another one, with an amount added."""
    if isinstance(tree, dict):
        values = raised if isinstance(raised, dict) else {}
        return all(_is_raised(values.get(name), part, amount) for name, part in tree.items())
    return isinstance(tree, np.ndarray) and expect.holds(expect.close, raised, tree + amount, "")


def _names(tree: object, prefix: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [prefix]
    return [name for part, subtree in tree.items() for name in _names(subtree, f"{prefix}.{part}".lstrip("."))]


def block_check(number: float, hint: str) -> Callable[[Cases], Check]:
    """Return a decorator for a check of `block`: each case is a list with the tree and x, and one with the stride."""
    tolerances = {"rtol": 2e-3, "atol": 1e-2}
    return compared(number, "block", hint=f"{BLOCK}; {hint}", probe=PROBES + "run", typed=True, **tolerances)


def _block(submission: Submission, shape: tuple[int, ...], filters: int, stride: int, *, projected: bool) -> Arguments:
    state = reference.draw_block(submission.rng, shape[1], filters, projected=projected)
    params = network.tree(reference.with_small_variances(state))
    return [reference.tree_map(partial(_stored, submission), params), submission.normal(*shape)], [stride]


@block_check(1, "normalise by running_mean and running_var, with 1e-5 added to the variance")
def blocks_add_their_input(submission: Submission) -> Iterator[Arguments]:
    """`block` adds its input if there is no `downsample`."""
    for shape in ((2, 4, 9, 7), (1, 3, 6, 8)):
        yield _block(submission, shape, shape[1], 1, projected=False)


@block_check(2, "the shortcut goes through downsample if, and only if, params has one, with the stride of conv1")
def blocks_project_their_input(submission: Submission) -> Iterator[Arguments]:
    """`block` projects its input by `downsample` if there is one, whatever the stride and the number of channels."""
    for shape, filters, stride in (
        ((2, 4, 9, 7), 6, 2),
        ((1, 4, 6, 8), 6, 1),
        ((2, 3, 8, 7), 3, 2),
        ((1, 5, 7, 5), 5, 1),
    ):
        yield _block(submission, shape, filters, stride, projected=True)


@points(1)
def resnet_gives_logits(submission: Submission) -> None:
    """`resnet` returns the {{ resnet_returns }} of ResNet-18."""
    state = reference.draw_state(submission.rng)
    x = submission.normal(2, 3, 33, 46)  # small, even and odd: what is done at the edges shows in the means
    logits = np.asarray(network.forward(no_jax, network.tree(state), x))
    spread = np.float32(max(1.0, logits.std()))  # a probability near 1 would hide much
    logits, state = logits / spread, state | {name: state[name] / spread for name in ("fc.weight", "fc.bias")}
    hint = (
        "conv1 with stride 2 and padding 3, bn1, relu, max pool; layer1 to layer4 of two blocks each, the first of "
        "which has stride 2 in layer2 to layer4; the mean over each channel; fc"
    )
    with expect.case(f"x {x.shape}, a ResNet-18 of {', '.join(map(str, reference.WIDTHS))} channels", hint):
        tree = reference.tree_map(partial(_stored, submission), network.tree(state))
        filters = submission.parameters.tree_filters
        probabilities = no_jax.softmax(logits)
        results = {"probabilities": probabilities, "log probabilities": np.log(probabilities)}
        want, failures = results.get(submission.parameters.resnet_returns, logits), []
        # with the course's tree or the student's, and with the student's block or the course's
        for arguments in itertools.product((tree, None), (x,), ("", filters)):
            try:
                result = submission.probe(PROBES + "run_resnet", "resnet", state, *arguments)
                tolerance = 2e-3 * np.abs(want).max()
                return expect.close(result, want, "what `resnet` returns", rtol=2e-3, atol=tolerance, dtype=np.float32)
            except expect.CheckFailed as failure:
                failures.append(failure)
        raise failures[1]  # with the course's tree and block: `resnet` itself is wrong


P5_1 = Task(
    "P5.1",
    "ResNet without modules",
    solution_is_fallback=True,
    minutes=30,
    builds_on=("P1.1",),
    varies=(TREE_FILTERS, RESNET_RETURNS),
    libraries=JAX,
)
