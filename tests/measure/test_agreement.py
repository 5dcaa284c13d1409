"""What alternatives return is taken apart and compared, whichever library it is from."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlhood.errors import MeasureError
from mlhood.measure.agreement import arrays, check_agreement, finisher, leaves

RIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def check(expected, got, rtol=1e-3, atol=1e-5):
    check_agreement(("right", arrays(expected)), ("other", arrays(got)), rtol, atol)


@pytest.mark.parametrize(
    "other",
    [
        RIGHT,
        RIGHT.astype(np.float64),
        RIGHT.astype(int),
        RIGHT + 5e-6,
        RIGHT * (1 + 5e-4),
        torch.from_numpy(RIGHT),
        torch.from_numpy(RIGHT.copy()).requires_grad_(),
        jnp.asarray(RIGHT),
    ],
)
def test_these_agree(other):
    check(RIGHT, other)
    check((RIGHT, {"a": RIGHT, "b": None}, 3), [other, {"a": other, "b": None}, np.int64(3)])


def test_bfloat16_is_compared_as_float32():
    check(RIGHT, jnp.asarray(RIGHT, jnp.bfloat16))
    check(RIGHT, torch.from_numpy(RIGHT).bfloat16())


def test_nan_equals_nan_and_infinities_by_sign():
    check(np.array([np.nan, np.inf, 1]), np.array([np.nan, np.inf, 1]))
    with pytest.raises(MeasureError, match="disagree"):
        check(np.array([np.inf]), np.array([-np.inf]))
    with pytest.raises(MeasureError, match="disagree"):
        check(np.array([1.0]), np.array([np.nan]))


def test_the_element_furthest_off_is_named():
    wrong = RIGHT.copy()
    wrong[1, 2] += 0.5
    wrong[2, 3] += 2.0
    with pytest.raises(MeasureError) as found:
        check({"y": RIGHT}, {"y": wrong})
    said = str(found.value)
    assert "'other' against 'right', result['y'], element [2, 3]; 2 of 12 elements differ" in said
    assert "expected: 11.0" in said
    assert "got: 13.0" in said


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (RIGHT.T, "shape"),
        ((RIGHT, RIGHT), "structures"),
        ({"x": RIGHT}, "structures"),
        (RIGHT.astype(bool), "disagree"),
        (np.full((3, 4), "a"), "disagree"),
    ],
)
def test_other_differences_are_told(got, message):
    with pytest.raises(MeasureError, match=message):
        check(RIGHT, got)


@pytest.mark.parametrize("result", [object(), [object()], {"a": lambda: 0}])
def test_what_is_no_array_is_refused(result):
    with pytest.raises(MeasureError, match="no array"):
        arrays(result)


def test_endless_nesting_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(MeasureError, match="nested too deep"):
        list(leaves(endless))


def test_empty_arrays_agree():
    check(np.zeros((0, 3)), torch.zeros(0, 3))
    check(None, None)


def test_a_result_is_copied():
    buffer = np.zeros(3)
    kept = arrays(buffer)
    buffer[:] = 1
    assert not kept[""].any()


def test_only_what_comes_later_is_waited_for():
    assert finisher(RIGHT) is None
    assert finisher([torch.zeros(1), 3]) is None
    for result in (jnp.ones(3), (jnp.ones(3), RIGHT), {"a": [jnp.ones(3)]}):
        wait = finisher(result)
        assert wait is not None
        wait(result)


def test_another_device_is_refused():
    with pytest.raises(MeasureError, match="processor's memory"):
        finisher(torch.zeros(2, device="meta"))
