from __future__ import annotations

from collections import Counter

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.draw import draw, require_variant_name, version_name
from mlhood.grading.variants.parameter import Parameter

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
    assert version_name("autumn", "B") == "autumn/B"
    assert version_name("autumn", "") == "autumn"
    require_variant_name("autumn/B")
