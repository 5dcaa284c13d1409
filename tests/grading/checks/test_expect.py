from __future__ import annotations

import numpy as np
import pytest

from mlhood.grading.checks import expect
from mlhood.grading.checks.expect import CheckFailed


@pytest.mark.parametrize("value", [3, np.array(3), np.array(3, np.int16)], ids=repr)
def test_an_integer_is_pythons_or_numpys(value):
    assert expect.integer(value, "the count") == 3
    assert expect.number(value, "the count") == 3.0


@pytest.mark.parametrize("value", [np.array([3]), np.array([[3]]), [3], "3", None, True, 3.0], ids=repr)
def test_an_array_of_one_is_no_integer(value):
    with pytest.raises(CheckFailed, match="no integer in the count"):
        expect.integer(value, "the count")


@pytest.mark.parametrize("value", [np.array([3.0]), [3.0], "3", None], ids=repr)
def test_an_array_of_one_is_no_number(value):
    with pytest.raises(CheckFailed, match="no number in the mean"):
        expect.number(value, "the mean")


def test_integers_are_compared_exactly():
    assert not expect.same_number(2**24 + 1, 2**24)
    assert expect.same_number(float(2**24 + 1), 2**24)


def test_whether_a_check_holds():
    assert expect.holds(expect.true, True, "never")
    assert not expect.holds(expect.true, False, "wrong", got=1)
    with pytest.raises(ZeroDivisionError):
        expect.holds(lambda: 1 / 0)


def test_what_is_not_written_yet_has_no_input_and_no_hint():
    with pytest.raises(CheckFailed) as failure, expect.case("x = 1", "begin with 0"):
        raise expect.NotWritten("`f` is not written yet", note="write it")
    assert failure.value.parts == {"note": "write it"}
