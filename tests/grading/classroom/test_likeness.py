from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.grading.classroom.likeness import WINDOW, K, Pair, alike, fingerprints, fingerprints_of, shape

ORIGINAL = '''
def im2col(x, kernel, stride):
    """Windows as columns."""
    channels, height, width = x.shape
    rows = []
    for c in range(channels):
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                window = x[c, i::stride, j::stride]  # every position
                rows.append(window[: height // stride, : width // stride].ravel())
    return np.stack(rows) if rows else np.zeros((0, 1))
'''
DISGUISED = """
def im2col(image, size, step):
    a, b, d = image.shape
    out = []

    for q in range(a):
        for r in range(size[7]):
            # my own idea
            for s in range(size[3]):
                view = image[q, r::step, s::step]
                out.append(view[: b // step, : d // step].ravel())
    return np.stack(out) if out else np.zeros((5, 9))
"""
OTHER = """
def im2col(x, kernel, stride):
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(1, 2))[:, ::stride, ::stride]
    c, oh, ow, kh, kw = view.shape
    while False:
        raise ValueError("never")
    return view.transpose(0, 3, 4, 1, 2).reshape(c * kh * kw, oh * ow).astype(np.float32, copy=False)
"""
KINDS = st.lists(st.sampled_from("abc"), max_size=80)


def test_names_numbers_and_comments_hide_nothing():
    assert shape(ORIGINAL) == shape(DISGUISED)
    assert shape(ORIGINAL) != shape(OTHER)


def test_the_disguised_copy_is_found_and_the_other_is_not():
    found = alike(
        {name: fingerprints_of([text]) for name, text in zip("abc", [ORIGINAL, DISGUISED, OTHER], strict=True)}
    )
    assert [(pair.first, pair.second, pair.share) for pair in found] == [("a", "b", 1.0)]


def test_what_was_given_tells_nothing():
    both = {name: fingerprints_of([ORIGINAL]) for name in "ab"}
    assert alike(both, given=fingerprints_of([DISGUISED])) == []


def test_what_many_have_tells_nothing():
    same = {f"s{n}": fingerprints_of([ORIGINAL]) for n in range(7)}
    assert alike(same) == []
    assert len(alike(dict(list(same.items())[:6]))) == 15


@given(KINDS, KINDS, st.lists(st.sampled_from("abc"), min_size=K + WINDOW - 1, max_size=60))
def test_every_passage_of_the_guaranteed_length_is_found(before, after, passage):
    assert fingerprints(before + passage) & fingerprints(passage + after)


@given(KINDS)
def test_only_what_is_there_is_found(kinds):
    marks = fingerprints(kinds)
    assert bool(marks) == (len(kinds) >= K)
    assert len(marks) <= max(len(kinds) - K + 1, 0)


@pytest.mark.parametrize(
    "source", ["def f(:", "x = '" + "\x00'", "(" * 5000, "-" * 50_000 + "1", "a" * 300_000, "x." * 20_000 + "y", ""]
)
def test_hostile_source_has_no_shape_or_a_short_one(source):
    assert len(shape(source)) <= 100_000
    assert fingerprints_of([source]) is not None


def test_ipythons_own_lines_are_passed_over():
    assert shape("%matplotlib inline\nx = 1\n!ls") == shape("pass\ny = 2\npass")


def test_the_smaller_one_counts():
    small, large = fingerprints_of([ORIGINAL]), fingerprints_of([ORIGINAL, OTHER])
    assert alike({"a": small, "b": large}) == [Pair("a", "b", len(small), 1.0)]
