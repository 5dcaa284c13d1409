"""Results of alternatives are flattened and compared, whichever library they are from."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlhood.errors import MeasureError
from mlhood.measure.agreement import arrays, check_agreement, finisher

REFERENCE = np.arange(12, dtype=np.float32).reshape(3, 4)


def check(expected, got, rtol=1e-3, atol=1e-5):
    check_agreement(("reference", arrays(expected)), ("other", arrays(got)), rtol, atol)


@pytest.mark.parametrize(
    "other",
    [
        REFERENCE,
        REFERENCE.astype(np.float64),
        REFERENCE.astype(int),
        REFERENCE + 5e-6,
        REFERENCE * (1 + 5e-4),
        torch.from_numpy(REFERENCE),
        torch.from_numpy(REFERENCE.copy()).requires_grad_(),
        jnp.asarray(REFERENCE),
    ],
)
def test_equal_values_agree_across_types_and_libraries(other):
    check(REFERENCE, other)
    check((REFERENCE, {"a": REFERENCE, "b": None}, 3), [other, {"a": other, "b": None}, np.int64(3)])


def test_bfloat16_is_compared_as_float32():
    check(REFERENCE, jnp.asarray(REFERENCE, jnp.bfloat16))
    check(REFERENCE, torch.from_numpy(REFERENCE).bfloat16())


def test_nan_equals_nan_and_infinities_by_sign():
    check(np.array([np.nan, np.inf, 1]), np.array([np.nan, np.inf, 1]))
    with pytest.raises(MeasureError, match="disagree"):
        check(np.array([np.inf]), np.array([-np.inf]))
    with pytest.raises(MeasureError, match="disagree"):
        check(np.array([1.0]), np.array([np.nan]))


def test_the_element_with_the_largest_error_is_named():
    wrong = REFERENCE.copy()
    wrong[1, 2] += 0.5
    wrong[2, 3] += 2.0
    with pytest.raises(MeasureError) as caught:
        check({"y": REFERENCE}, {"y": wrong})
    message = str(caught.value)
    assert "'other' against 'reference', result['y'], element [2, 3]; 2 of 12 elements differ" in message
    assert "expected: 11.0" in message
    assert "got: 13.0" in message


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (REFERENCE.T, "shape"),
        ((REFERENCE, REFERENCE), "structures"),
        ({"x": REFERENCE}, "structures"),
        (REFERENCE.astype(bool), "disagree"),
        (np.full((3, 4), "a"), "disagree"),
    ],
)
def test_other_differences_are_reported(got, message):
    with pytest.raises(MeasureError, match=message):
        check(REFERENCE, got)


@pytest.mark.parametrize("result", [object(), [object()], {"a": lambda: 0}])
def test_other_objects_are_refused(result):
    with pytest.raises(MeasureError, match="not an array"):
        arrays(result)


def test_empty_arrays_agree():
    check(np.zeros((0, 3)), torch.zeros(0, 3))
    check(None, None)


def test_a_result_is_copied():
    buffer = np.zeros(3)
    copies = arrays(buffer)
    buffer[:] = 1
    assert not copies[""].any()


def test_only_asynchronous_results_are_waited_for():
    assert finisher(REFERENCE) is None
    assert finisher([torch.zeros(1), 3]) is None
    for result in (jnp.ones(3), (jnp.ones(3), REFERENCE), {"a": [jnp.ones(3)]}):
        wait = finisher(result)
        assert wait is not None
        wait(result)


def test_another_device_is_refused():
    with pytest.raises(MeasureError, match="processor's memory"):
        finisher(torch.zeros(2, device="meta"))
