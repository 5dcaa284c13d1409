"""Merging of consecutive reshapes."""

import pytest

from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from tests.compiler.passes.building import Tanh, apply, becomes, example, kinds

PASS = "merge_reshapes"

MERGED = {
    "reshape twice": (lambda b: b(Reshape((-1, 8)), b(Reshape((-1, 16)), b.x("n", 2, 4, 4))), ["Reshape"]),
    "reshape and flatten": (lambda b: b(Flatten(1), b(Reshape((0, 4, 8)), b.x("n", 2, 4, 4))), ["Flatten"]),
    "squeeze and flatten": (lambda b: b(Flatten(1), b(Squeeze((2, 3)), b.x("n", 2, 1, 1))), ["Flatten"]),
    "squeeze and unsqueeze": (lambda b: b(Unsqueeze((2, 3)), b(Squeeze((2, 3)), b.x("n", 2, 1, 1))), []),
    "a chain": (
        lambda b: b(Reshape((-1, 4)), b(Unsqueeze((0,)), b(Flatten(0), b(Reshape((0, 2, 2, 8)), b.x("n", 2, 4, 4))))),
        ["Reshape"],
    ),
    "two dynamic axes": (lambda b: b(Squeeze((1,)), b(Unsqueeze((1, 2)), b.x("n", "h", 2))), ["Reshape"]),
    "no axes": (lambda b: b(Unsqueeze((0,)), b(Squeeze((0,)), b.x(1))), []),
}


test_merged = becomes(PASS, MERGED)


STAYS = {
    "a single reshape": lambda b: b(Reshape((-1, 16)), b.x("n", 2, 4, 4)),
    "the inner one is an output": lambda b: (b(Reshape((-1, 8)), (y := b(Reshape((-1, 16)), b.x("n", 2, 4, 4)))), y),
    "the inner one has another use": lambda b: (
        b(Reshape((-1, 8)), (y := b(Reshape((-1, 16)), b.x("n", 2, 4, 4)))),
        b(Tanh(), y),
    ),
    "an operator between": lambda b: b(Reshape((-1, 8)), b(Tanh(), b(Reshape((-1, 16)), b.x("n", 2, 4, 4)))),
    "an empty axis": lambda b: b(Reshape((3, 0), True), b(Unsqueeze((1,)), b.x(0, 3))),
    "two dynamic axes that move": lambda b: b(Squeeze((0,)), b(Unsqueeze((0, 1)), b.x("n", "h"))),
}


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_stays(make):
    before = kinds(apply(make, "remove_dead_code"))
    assert kinds(apply(make, PASS)) == before


def test_a_round_trip_is_removed_even_if_the_inner_one_has_other_uses():
    graph = apply(
        lambda b: (
            b(Squeeze((2, 3)), b(Unsqueeze((2, 3)), (y := b(Squeeze((2, 3)), b.x("n", 2, 1, 1))))),
            b(Tanh(), y),
        ),
        PASS,
    )
    assert kinds(graph) == ["Squeeze", "Squeeze", "Tanh"]
    assert graph.outputs["y"].producer.inputs[0].name == "x"


def make(b):
    x = b(Squeeze((3,)), b(Tanh(), b.x("n", 2, 4, 1), name="tanh"), name="squeeze")
    return b(Flatten(1), x, name="flatten")


test_golden = example(PASS, make)
