"""Every step keeps the meaning: each point once, the same sums; and says why where it would not."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow import nest as room
from mlhood.dataflow.nest import NestError, conv2d, gemm, nest

from .cases import integers, meaning, rounds, scheduled

GEMM = gemm(12, 8, 6)


def interpreted(made, arrays):
    """Run the generated Python as Python."""
    output = np.zeros(made.output.shape, np.float32)
    buffers = [np.full(pack.shape, np.nan, np.float32) for pack in made.packs]
    given = [*(arrays[one.array] for one in made.inputs), output, *buffers]
    lying = {one.ctypes.data: one.reshape(-1) for one in given}

    def multiply_add(operands):
        """What `mlhood.dataflow.nest.vectors` does, told by NumPy."""
        lanes, places = made.loops[-1].extent, zip(operands[::2], operands[1::2], strict=True)
        total, *factors = [
            lying[base][element : element + (lanes if step else 1)]
            for (base, element), step in zip(places, made.steps, strict=True)
        ]
        product = np.prod(np.broadcast_arrays(*factors, np.ones(lanes)), axis=0)
        total += product if len(total) == lanes else product.sum()

    scope = {"_multiply_add": multiply_add}
    exec(made.source(), scope)
    scope["run"](*given)
    return output


@settings(max_examples=80, deadline=None)
@given(case=scheduled(vectors=True))
def test_a_schedule_visits_every_point_once_and_computes_the_same(case):
    original, made = case
    points = [tuple(point.values()) for point in rounds(original)]
    assert sorted(map(tuple, made.visits().tolist())) == points
    arrays = integers(original)
    np.testing.assert_array_equal(interpreted(made, arrays), meaning(original, arrays))


@settings(max_examples=30, deadline=None)
@given(case=scheduled())
def test_visits_follow_the_loops(case):
    _, made = case
    expected = [[one.at(point) for one in made.origin] for point in rounds(made)]
    np.testing.assert_array_equal(made.visits(), expected)


def test_a_split_that_divides_needs_no_guard():
    made = gemm(12, 8, 6).split("i", 4)
    assert made.names == ("i_o", "i_i", "j", "k")
    assert made.extents["i_o"] == 3
    assert made.guards == ()
    assert "min" not in str(made)


def test_a_tail_ends_the_last_round_early():
    assert "for i_i in range(min(16, 60 - 16*i_o)):" in str(gemm(60, 8, 8).split("i", 16, "guard"))
    exchanged = gemm(60, 8, 8).split("i", 16, "guard").reorder("i_i", "i_o")
    assert "for i_o in range(min(4, (75 - i_i) // 16)):" in str(exchanged)


def test_a_tile_is_splits_and_a_reorder():
    by_hand = GEMM.split("i", 4).split("k", 3).reorder("i_o", "j", "k_o", "i_i", "k_i")
    assert GEMM.tile(k=3, i=4) == by_hand
    assert GEMM.tile(i=4, j=4).names == ("i_o", "j_o", "i_i", "j_i", "k")


def test_reorder_moves_only_what_is_named():
    assert GEMM.reorder("k", "i").names == ("k", "j", "i")
    assert GEMM.reorder() == GEMM


def test_unrolled_code_has_no_loop():
    source = GEMM.reorder("i", "j", "k").unroll("k").source()
    assert "for k" not in source
    assert source.count("+=") == 6
    assert "C[i, j] += A[i, 5] * B[5, j]" in source


def test_the_code_of_a_vector_says_what_it_does():
    source = GEMM.reorder("i", "k", "j").vectorise("j").source()
    assert "# 8 lanes from C[i, 0] += A[i, k] * B[k, 0]" in source
    assert "_multiply_add((C.ctypes.data, 8*i, A.ctypes.data, 6*i + k, B.ctypes.data, 8*k))" in source


def test_a_nest_prints_as_pseudo_code(golden):
    made = conv2d((1, 8, 15, 15), (24, 8, 3, 3), 2, 1).split("ow", 4).split("f", 10, "guard").split("c", 2)
    made = made.reorder("f_o", "oh", "ow_o", "c_o", "kh", "kw", "f_i", "c_i", "ow_i")
    made = made.pack("w", at="f_o", order=("c_o", "kh", "kw", "c_i", "f_i")).pack("x", at="ow_o")
    golden("dataflow/nest/golden/conv.txt", f"{made.unroll('c_i').vectorise('ow_i')}\n")


def test_the_room_shows_what_it_prints():
    assert doctest.testmod(room) == (0, 2)


def test_the_words_of_the_polyhedral_model():
    made = gemm(60, 8, 7).split("i", 16, "guard").reorder("k", "i_i", "j", "i_o")
    assert made.domain_set() == "{ S[i, j, k] : 0 <= i < 60 and 0 <= j < 8 and 0 <= k < 7 }"
    assert made.schedule_map() == (
        "{ S[i, j, k] -> [k, i_i, j, i_o] : i = 16*i_o + i_i and "
        "0 <= k < 7 and 0 <= i_i < 16 and 0 <= j < 8 and 0 <= i_o < 4 and 16*i_o + i_i < 60 }"
    )


ERRORS = {
    "no loop": (lambda: GEMM.split("x", 2), "there is no such loop"),
    "no divisor": (lambda: GEMM.split("i", 5), r"5 does not divide 12(.|\n)*1, 2, 3, 4, 6, 12(.|\n)*tail='guard'"),
    "too large": (lambda: GEMM.split("i", 13), "from 1 to its extent, 12"),
    "no number": (lambda: GEMM.split("i", 2.0), "factor has no meaning"),
    "no tail": (lambda: GEMM.split("i", 2, "cut"), "'perfect' or 'guard'"),
    "name of another loop": (lambda: GEMM.split("i", 2, names=("j", "ii")), "name is taken"),
    "name of an array": (lambda: GEMM.split("i", 2, names=("A_packed", "ii")), "name is taken"),
    "name of Python's": (lambda: GEMM.split("i", 2, names=("for", "ii")), "not a name"),
    "name in the code": (lambda: GEMM.split("i", 2, names=("range", "ii")), "generated code"),
    "one name": (lambda: GEMM.split("i", 2, names=("ii", "ii")), "two different names"),
    "empty tile": (lambda: GEMM.tile(), "extent along some loops"),
    "split when unrolled": (lambda: GEMM.unroll("i").split("i", 2), "the loop is unrolled"),
    "loop twice": (lambda: GEMM.reorder("i", "i"), "named twice"),
    "vector not innermost": (lambda: GEMM.vectorise("j"), "only the innermost"),
    "vector moved out": (lambda: GEMM.reorder("k", "j").vectorise("j").reorder("j", "k"), "stays the innermost"),
    "vector of distant elements": (lambda: GEMM.vectorise("k"), "neighbours in B(.|\n)*got: 8"),
    "too many lanes": (lambda: gemm(2, 65, 2).reorder("k", "j").vectorise("j"), "at most 64"),
    "unrolled twice": (lambda: GEMM.unroll("i").unroll("i"), "unrolled already"),
    "unrolled tail": (lambda: GEMM.split("i", 5, "guard").unroll("i_i"), "changes cannot be unrolled"),
    "too much code": (lambda: gemm(17, 17, 1).unroll("i").unroll("j"), "at most 256 copies"),
    "split when packed": (lambda: GEMM.pack("A", at="i").split("k", 2), "A is packed for the loops as they are"),
    "reorder when packed": (lambda: GEMM.pack("A", at="i").reorder("k", "j"), "first, then pack"),
    "packed when vectorised": (lambda: GEMM.reorder("k", "j").vectorise("j").pack("B"), "pack first, then vectorise"),
    "packed output": (lambda: GEMM.pack("C"), "the output is not packed"),
    "packed nothing": (lambda: GEMM.pack("D"), "there is no such input"),
    "packed twice": (lambda: GEMM.pack("A").pack("A"), "packed already"),
    "nothing to pack": (lambda: GEMM.pack("A", at="k"), "there is nothing to copy"),
    "wrong axes": (lambda: GEMM.pack("A", at="i", order=("i",)), "not the loops inside"),
    "too large a buffer": (lambda: gemm(1 << 15, 8, 1 << 15).pack("A"), "buffer would be too large"),
    "too many visits": (lambda: gemm(1 << 10, 1 << 10, 2).visits(), "too many points to be held"),
    "not run on its inputs": (lambda: GEMM.run(A=np.zeros((12, 6), np.float32)), "expected: A, B"),
    "wrong shape": (lambda: GEMM.run(A=np.zeros((6, 12), np.float32), B=np.zeros((6, 8), np.float32)), "does not fit"),
    "wrong type": (lambda: GEMM.run(A=np.zeros((12, 6)), B=np.zeros((6, 8), np.float32)), "got: float64"),
    "no array": (lambda: GEMM.run(A=[1.0], B=[1.0]), "got: list"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_a_step_that_has_no_meaning_is_refused(case):
    step, said = ERRORS[case]
    with pytest.raises(NestError, match=said):
        step()


# -- statements


STATEMENTS = {
    "no sum": ("C[i] = A[i]", "adds products"),
    "two": ("C[i] += A[i]; C[i] += A[i]", "adds products"),
    "no Python": ("C[i] += ", "cannot be read"),
    "no element": ("C[i] += A[i] * 2", "no element of an array"),
    "a call": ("C[i] += f(i)", "no element of an array"),
    "no affine index": ("C[i] += A[i * i]", "not affine"),
    "a divided index": ("C[i] += A[i // 2]", "not affine"),
    "an unknown loop": ("C[i] += A[i + k]", "what is no loop"),
    "an array twice": ("C[i] += C[i]", "stands twice"),
    "beyond the array": ("C[i] += A[i - 1]", r"holds \[-1..2\]"),
    "an idle loop": ("C[0] += A[0]", "indexes nothing"),
    "a name twice": ("i[i] += A[i]", "one name"),
    "a copy's name": ("C[i] += A[i] * A_packed[i]", "the name of a packed copy"),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_a_statement_that_is_none_is_refused(case):
    text, said = STATEMENTS[case]
    with pytest.raises(NestError, match=said):
        nest(text, i=4)


@pytest.mark.parametrize("extent", [0, -1, 2.0, True, "4"])
def test_an_extent_is_a_positive_integer(extent):
    with pytest.raises(NestError, match="number of rounds"):
        nest("C[i] += A[i]", i=extent)


def test_a_shape_may_be_larger_but_not_smaller():
    assert nest("C[i] += A[2*i]", {"A": (8,)}, i=4).inputs[0].shape == (8,)
    for shapes in ({"A": (6,)}, {"A": (8, 1)}):
        with pytest.raises(NestError, match="reach beyond"):
            nest("C[i] += A[2*i]", shapes, i=4)
    with pytest.raises(NestError, match="belongs to no array"):
        nest("C[i] += A[2*i]", {"B": (8,)}, i=4)


def test_indices_read_as_they_are_meant():
    made = nest("C[i] += A[2*(3 - i) + k*2 - -1]", i=4, k=2)
    assert str(made.inputs[0]) == "A[2*k + 7 - 2*i]"
    assert made.inputs[0].shape == (10,)
