"""Checks of P5.1: ResNet as pure functions of a tree of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes:"
BLOCK = "conv1, bn1, relu, conv2, bn2, then the sum with the shortcut, and relu of that"


def _treed(submission: Submission, state: reference.State) -> dict[str, Any]:
    """What `to_tree` makes of a state: the `tree`, and whether its arrays are `all_jax`."""
    told = submission.call(PROBES + "treed", submission.value("to_tree"), state)
    return dict(expect.mapping(told, ("tree", "all_jax"), "what `to_tree` returns"))


def _at(tree: object, name: str) -> object:
    """What lies at a dotted name."""
    for number, part in enumerate(name.split(".")):
        here = name.split(".")[:number]
        at = "".join(f'["{one}"]' for one in here)
        if not isinstance(tree, dict) or part not in tree:
            got = sorted(map(str, tree))[:8] if isinstance(tree, dict) else expect.show(tree)
            hint = 'params["layer1"]["0"]["conv1"]["weight"]: one dictionary for each part of a name'
            expect.fail(f"the tree has no `{name}`", expected=f'tree{at}["{part}"]', got=str(got), hint=hint)
        tree = tree[part]
    return tree


@points(1)
def names_become_a_tree(submission: Submission) -> None:
    """`to_tree` makes nested dictionaries of dotted names."""
    state = reference.draw_state(submission.rng)
    made = _treed(submission, state)["tree"]
    for name, value in state.items():
        if not name.endswith("num_batches_tracked"):
            expect.close(_at(made, name), value, f"the tree at `{name}`")


@points(1)
def leaves_are_jax_arrays_alone(submission: Submission) -> None:
    """`to_tree` makes arrays of JAX, and leaves `num_batches_tracked` out."""
    made = _treed(submission, reference.draw_block(submission.rng, 3, 5, "layer1.0."))
    left = [name for name in _names(made["tree"]) if "num_batches_tracked" in name]
    expect.true(isinstance(made["tree"], dict) and bool(made["tree"]), "`to_tree` returns no tree", got=made["tree"])
    expect.true(not left, "counts of batches are still there", expected="none", got=", ".join(left[:3]),
                hint="they are no parameters: whole numbers, of which there is no derivative")  # fmt: skip
    expect.true(made["all_jax"] is True, "not all leaves are arrays of JAX", expected="jax.Array",
                got="others as well", hint="jnp.asarray(value)")  # fmt: skip


def _names(tree: object, prefix: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [prefix]
    return [name for part, one in tree.items() for name in _names(one, f"{prefix}.{part}".lstrip("."))]


def _block(submission: Submission, channels: int, filters: int, stride: int, hint: str) -> None:
    state = reference.draw_block(submission.rng, channels, filters, least=1e-4)  # so small that the epsilon shows
    params, x = reference.tree(state), submission.normal(2, channels, 9, 7)
    given = f"x {x.shape}, {filters} filters, stride {stride}"
    with expect.case(given, hint):
        got = submission.call(PROBES + "ran", submission.value("block"), [params, x], [stride])
    want = reference.block(params, x, stride)
    expect.close(got, want, "what `block` returns", rtol=2e-3, atol=2e-3 * np.abs(want).max(), given=given, hint=hint)


@points(2)
def blocks_add_their_input(submission: Submission) -> None:
    """`block` adds its input where nothing changes the shape."""
    hint = f"{BLOCK}; normalised by running_mean and running_var, with 1e-5 added to the variance"
    _block(submission, 4, 4, 1, hint)


@points(2)
def blocks_project_their_input(submission: Submission) -> None:
    """`block` brings its input to the shape of the sum by `downsample`, where there is one."""
    hint = f'{BLOCK}; the shortcut is downsample["0"], a 1 x 1 convolution of the same stride, and downsample["1"]'
    _block(submission, 4, 6, 2, hint)


@points(2)
def resnet_gives_logits(submission: Submission) -> None:
    """`resnet` gives the logits of ResNet-18."""
    state = reference.draw_state(submission.rng)
    x = submission.normal(2, 3, 64, 64)
    hint = (
        "conv1 of stride 2 and padding 3, bn1, relu, max pool; layer1 to layer4 of two blocks each, the first of which "
        "has stride 2 in layer2 to layer4; the mean over each channel; fc"
    )
    given = f"x {x.shape}, a ResNet-18 of {', '.join(map(str, reference.WIDTHS))} channels"
    with expect.case(given, hint):
        told = submission.call(PROBES + "ran_resnet", submission.value("resnet"), state, x)
    want = reference.resnet(reference.tree(state), x)
    with expect.case(given, hint):
        _one_of(submission, told, want)


def _one_of(submission: Submission, told: object, want: np.ndarray) -> None:
    """Pass if the network is right with its own block or a right one, on a right tree or on the student's own."""
    found = list(told) if isinstance(told, list | tuple) else []
    expect.true(bool(found), "`resnet` gave no logits", got=told)
    failures = []
    for one in found:
        if isinstance(one, str):
            failures.append(expect.CheckFailed("`resnet` stops with an error", got=one))
            continue
        try:
            expect.close(one, want, "what `resnet` returns", rtol=2e-3, atol=2e-3 * np.abs(want).max())
        except expect.CheckFailed as failure:
            failures.append(failure)
        else:
            return
    raise failures[min(1, len(failures) - 1)]  # on a right tree and with a right block: what is left is its own


RESNET_STAND_IN = """
from mlhood.grading.projects.p5.probes import right_block as block, right_resnet as resnet, right_tree as to_tree
"""


TASKS = (
    Task(
        "P5.1",
        "ResNet without modules",
        checks=(
            names_become_a_tree,
            leaves_are_jax_arrays_alone,
            blocks_add_their_input,
            blocks_project_their_input,
            resnet_gives_logits,
        ),
        stand_in=RESNET_STAND_IN,
        forbidden=("mlhood.jaxlab.operators.network", "mlhood.jaxlab.operators.resnet"),
    ),
)
