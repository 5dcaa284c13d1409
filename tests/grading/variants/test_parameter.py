from __future__ import annotations

from collections import Counter

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.parameter import (
    Parameter,
    checked_values,
    defaults,
    draw,
    require_variant_name,
)

SLOPE = Parameter("slope", (0.01, 0.02, 0.05))
KERNEL = Parameter("kernel", ((3, 3), (1, 5)))


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


PARAMETERS = [Parameter("slope", (1, 2, 3, 4)), Parameter("axis", (0, 1))]


def test_a_word_draws_the_same_values_on_every_machine():
    assert draw("harbour-1", "P1", PARAMETERS) == {"slope": 2, "axis": 1}


def test_the_default_is_never_drawn_and_every_other_value_is():
    drawn = Counter(draw(f"name-{n}", "P1", PARAMETERS)["slope"] for n in range(300))
    assert set(drawn) == {2, 3, 4}
    assert min(drawn.values()) > 60


def test_another_project_or_parameter_draws_on_its_own():
    names = [f"name-{n}" for n in range(50)]
    same = Parameter("other", (1, 2, 3, 4))
    assert any(draw(name, "P1", PARAMETERS)["slope"] != draw(name, "P2", PARAMETERS)["slope"] for name in names)
    assert any(draw(name, "P1", [*PARAMETERS, same])["slope"] != draw(name, "P1", [same])["other"] for name in names)


@pytest.mark.parametrize("name", ["", "?", " a", "ä", "-a", "a" * 101, "a\nb"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(GradingError, match="name of a variant"):
        require_variant_name(name)


def test_a_group_has_a_word_of_its_own():
    require_variant_name("autumn/B")
