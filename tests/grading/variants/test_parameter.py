from __future__ import annotations

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.parameter import Parameter, checked_values, defaults

SLOPE = Parameter("slope", (0.01, 0.02, 0.05))
KERNEL = Parameter("kernel", ((3, 3), (1, 5)))


@pytest.mark.parametrize(("name", "values"), [("a b", (1, 2)), ("one", (1,)), ("none", ()), ("twice", (1, 2, 2))])
def test_what_cannot_vary_is_refused(name, values):
    with pytest.raises(GradingError, match="declared wrongly"):
        Parameter(name, values)


def test_the_first_value_is_the_default():
    assert defaults([SLOPE, KERNEL]) == {"slope": 0.01, "kernel": (3, 3)}


def test_values_from_json_are_those_of_the_domain():
    assert checked_values([SLOPE, KERNEL], {"slope": 0.05, "kernel": [1, 5]}) == {"slope": 0.05, "kernel": (1, 5)}


@pytest.mark.parametrize("values", [{"slope": 0.03}, {}, {"slope": [0.05]}])
def test_other_values_are_refused_with_the_domain(values):
    with pytest.raises(GradingError) as caught:
        checked_values([SLOPE], values)
    assert "0.02" in caught.value.parts["expected"]
    assert caught.value.parts["where"] == "slope"
