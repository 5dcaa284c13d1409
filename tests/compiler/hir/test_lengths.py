"""Lengths as expressions: equal ones have one form, and each has the value of the same steps on numbers."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.compiler.hir.lengths import (
    Length,
    add_dims,
    broadcast_dims,
    divide_dim,
    evaluate,
    is_at_least,
    maximum,
    minimum,
    names_in,
    product,
    quotient,
    remainder,
    scale_dim,
    slice_length,
    subtract_dims,
)
from mlhood.errors import CompilerError

END = 2**63 - 1
L, H, N = "l", "h", "n"
HALF = divide_dim(N, 2)
PADDED = add_dims(H, remainder(subtract_dims(7, remainder(H, 7)), 7))


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (add_dims(add_dims(H, 2), -2), "h"),
        (divide_dim(add_dims(H, -1), 2), "(h+1)//2-1"),
        (product((2, N, 3)), "6*n"),
        (product((add_dims(N, 1), add_dims(N, -1))), "n*n-1"),
        (slice_length(L, 1, END, 1), "max(l-1, 0)"),
        (slice_length(L, 0, -1, 1), "max(l-1, 0)"),
        (slice_length(L, 1, -1, 1), "max(l-2, 0)"),
        (slice_length(slice_length(L, 1, END, 1), 0, -1, 1), "max(l-2, 0)"),
        (slice_length(L, 0, END, 2), "(l+1)//2"),
        (slice_length(L, -1, -END, -1), "l"),
        (add_dims(slice_length(N, 0, HALF, 1), slice_length(N, HALF, END, 1)), "n"),
        (add_dims(slice_length(N, 0, remainder(-1, N), 1), slice_length(N, remainder(-1, N), END, 1)), "n"),
        (divide_dim(add_dims(divide_dim(add_dims(H, 1), 2), 1), 2), "(h+3)//4"),
        (divide_dim(H, 7, up=True), "(h+6)//7"),
        (PADDED, "7*((h+6)//7)"),
        (quotient([PADDED, N], [7]), "((h+6)//7)*n"),
        (quotient([12, add_dims(N, 1), L, 64], [add_dims(product((64, N)), 64)]), "12*l"),
        (quotient([add_dims(N, 1), add_dims(L, H)], [add_dims(H, L)]), "n+1"),
        (divide_dim(add_dims(product((3, N)), 6), add_dims(N, 2)), 3),
        (scale_dim(H, 0.5), "h//2"),
        (minimum(H, maximum(H, L)), "h"),
        (broadcast_dims(N, slice_length(512, 0, N, 1)), "n"),
        (broadcast_dims(N, 5), 5),
        (broadcast_dims(broadcast_dims(N, L), N, 1), "broadcast(l, n)"),
    ],
)
def test_equal_lengths_have_one_form(length, text):
    assert length == text


NAMES = ("l", "h", "n")
STEPS = {
    "add": add_dims,
    "subtract": subtract_dims,
    "multiply": lambda a, b: product((a, b)),
    "max": maximum,
    "min": minimum,
    "half": lambda a, b: divide_dim(a, 2),
    "seventh": lambda a, b: divide_dim(add_dims(a, b), 7, up=True),
    "modulo": lambda a, b: remainder(a, 3),
    "ratio": lambda a, b: divide_dim(a, add_dims(maximum(b, 0), 1)),
    "scale": lambda a, b: scale_dim(a, 0.7),
    "tail": lambda a, b: slice_length(maximum(a, 0), b, END, 1),
    "head": lambda a, b: slice_length(maximum(a, 0), 0, b, 2),
    "mirrored": lambda a, b: slice_length(maximum(a, 0), -1, b, -2),
}
LEAVES = st.sampled_from(NAMES) | st.integers(-4, 9)
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(sorted(STEPS)), inner, inner), max_leaves=8)


def build(tree, leaves):
    if isinstance(tree, tuple):
        step, first, second = tree
        return STEPS[step](build(first, leaves), build(second, leaves))
    return leaves.get(tree, tree)


@given(TREES, st.lists(st.integers(0, 17), min_size=3, max_size=3), st.integers(-3, 3))
def test_an_expression_has_the_value_of_its_steps(tree, numbers, limit):
    lengths = dict(zip(NAMES, numbers, strict=True))
    expression, wanted = build(tree, {}), build(tree, lengths)
    assert evaluate(expression, lengths) == wanted
    assert evaluate(evaluate(expression, {**{name: name for name in NAMES}, "l": lengths["l"]}), lengths) == wanted
    assert wanted >= limit or not is_at_least(expression, limit)
    again = pickle.loads(pickle.dumps(expression))
    assert (again, evaluate(again, lengths)) == (expression, wanted)


@pytest.mark.parametrize(("first", "second"), [(1, 4), (4, 1), (3, 3), (0, 1)])
def test_broadcast_lengths(first, second):
    wanted = 0 if 0 in (first, second) else max(first, second)
    assert evaluate(broadcast_dims("a", "b"), {"a": first, "b": second}) == wanted


def test_lengths_that_cannot_be_computed():
    with pytest.raises(CompilerError, match="broadcast"):
        evaluate(broadcast_dims("a", "b"), {"a": 2, "b": 3})
    with pytest.raises(CompilerError, match="cannot be computed"):
        evaluate(divide_dim("a", "b"), {"a": 2, "b": 0})
    with pytest.raises(CompilerError, match="is not known"):
        evaluate(add_dims("a", "b"), {"a": 2})


def test_long_and_deep_expressions_stay_small():
    length = Length("n")
    for i in range(100):
        length = product((add_dims(length, f"axis{i}"), divide_dim(length, 3), maximum(length, i)))
        assert len(length) <= 120
    assert set(names_in(length))
