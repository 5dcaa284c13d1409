"""Every step preserves the semantics, each point once and the same sums, or is rejected with a reason."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow import nest as package
from mlhood.dataflow.nest import NestError, gemm, nest

from .cases import conv2d, integers, iterations, reference, scheduled

GEMM = gemm(12, 8, 6)


def interpreted(nest, arrays):
    """Run the nest as it prints."""
    output = np.zeros(nest.output.shape, np.float32)
    exec(str(nest), arrays | {nest.output.array: output})
    return output


@settings(max_examples=80)
@given(case=scheduled())
def test_a_schedule_visits_every_point_once_and_computes_the_same(case):
    original, result = case
    points = [tuple(point.values()) for point in iterations(original)]
    assert sorted(map(tuple, result.visits().tolist())) == points
    arrays = integers(original)
    np.testing.assert_array_equal(interpreted(result, arrays), reference(original, arrays))


@settings(max_examples=30)
@given(case=scheduled())
def test_visits_are_in_loop_order(case):
    _, result = case
    expected = [[axis.evaluate(point) for axis in result.origin] for point in iterations(result)]
    np.testing.assert_array_equal(result.visits(), expected)


def test_a_split_that_divides_needs_no_guard():
    split = gemm(12, 8, 6).split("i", 4)
    assert split.names == ("i_o", "i_i", "j", "k")
    assert split.extents["i_o"] == 3
    assert split.guards == ()
    assert "min" not in str(split)


def test_a_guard_cuts_off_the_last_tile():
    assert "for i_i in range(min(16, 60 - 16*i_o)):" in str(gemm(60, 8, 8).split("i", 16, "guard"))
    interchanged = gemm(60, 8, 8).split("i", 16, "guard").reorder("i_i", "i_o")
    assert "for i_o in range(min(4, (75 - i_i) // 16)):" in str(interchanged)


def test_tile_is_split_and_reorder():
    by_hand = GEMM.split("i", 4).split("k", 3).reorder("i_o", "j", "k_o", "i_i", "k_i")
    assert GEMM.tile(k=3, i=4) == by_hand
    assert GEMM.tile(i=4, j=4).names == ("i_o", "j_o", "i_i", "j_i", "k")


def test_reorder_moves_only_the_listed_loops():
    assert GEMM.reorder("k", "i").names == ("k", "j", "i")
    assert GEMM.reorder() == GEMM


def test_a_nest_prints_as_python(golden):
    tiled = conv2d((8, 17, 17), (24, 8, 3, 3), 2).split("ow", 4).split("f", 10, "guard").split("c", 2)
    tiled = tiled.reorder("f_o", "oh", "ow_o", "c_o", "kh", "kw", "f_i", "c_i", "ow_i")
    golden("dataflow/nest/golden/conv.txt", f"{tiled}\n")


def test_the_example_in_the_package_docstring():
    assert doctest.testmod(package) == (0, 2)


ERRORS = {
    "unknown loop": (lambda: GEMM.split("x", 2), "unknown loop"),
    "no divisor": (lambda: GEMM.split("i", 5), r"5 does not divide 12(.|\n)*1, 2, 3, 4, 6, 12(.|\n)*tail='guard'"),
    "too large": (lambda: GEMM.split("i", 13), "from 1 to its extent, 12"),
    "not an integer": (lambda: GEMM.split("i", 2.0), "invalid split factor"),
    "unknown tail": (lambda: GEMM.split("i", 2, "cut"), "'perfect' or 'guard'"),
    "name of an array": (lambda: nest("i_o[i] += A[i]", i=4).split("i", 2), "name is already in use"),
    "empty tile": (lambda: GEMM.tile(), "at least one loop"),
    "loop twice": (lambda: GEMM.reorder("i", "i"), "listed twice"),
    "too many visits": (lambda: gemm(1 << 10, 1 << 10, 2).visits(), "too many points to list"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_invalid_step_is_rejected(case):
    step, message = ERRORS[case]
    with pytest.raises(NestError, match=message):
        step()


# -- statements


STATEMENTS = {
    "an assignment": ("C[i] = A[i]", "must add a product"),
    "two": ("C[i] += A[i]; C[i] += A[i]", "must add a product"),
    "a syntax error": ("C[i] += ", "syntax error"),
    "a scalar": ("C[i] += A[i] * 2", "not an array element"),
    "a call": ("C[i] += f(i)", "not an array element"),
    "a quadratic index": ("C[i] += A[i * i]", "not affine"),
    "a divided index": ("C[i] += A[i // 2]", "not affine"),
    "an unknown loop": ("C[i] += A[i + k]", "unknown loop in an index"),
    "an array twice": ("C[i] += C[i]", "occurs twice"),
    "beyond the array": ("C[i] += A[i - 1]", r"contains \[-1..2\]"),
    "an unused loop": ("C[0] += A[0]", "indexes no array"),
    "an invalid name": ("C[i] += _A[i]", "invalid name"),
    "a reserved name": ("C[i] += range[i]", "reserved"),
    "a name twice": ("i[i] += A[i]", "the same name"),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_an_invalid_statement_is_rejected(case):
    text, message = STATEMENTS[case]
    with pytest.raises(NestError, match=message):
        nest(text, i=4)


@pytest.mark.parametrize("extent", [0, -1, 2.0, True, "4"])
def test_an_invalid_extent_is_rejected(extent):
    with pytest.raises(NestError, match="invalid extent"):
        nest("C[i] += A[i]", i=extent)


def test_a_shape_may_be_larger_but_not_smaller():
    assert nest("C[i] += A[2*i]", {"A": (8,)}, i=4).inputs[0].shape == (8,)
    for shapes in ({"A": (6,)}, {"A": (8, 1)}):
        with pytest.raises(NestError, match="out of bounds"):
            nest("C[i] += A[2*i]", shapes, i=4)
    with pytest.raises(NestError, match="shape of an unknown array"):
        nest("C[i] += A[2*i]", {"B": (8,)}, i=4)


def test_an_index_is_normalised():
    access = nest("C[i] += A[2*(3 - i) + k*2 - -1]", i=4, k=2).inputs[0]
    assert str(access) == "A[2*k + 7 - 2*i]"
    assert access.shape == (10,)
