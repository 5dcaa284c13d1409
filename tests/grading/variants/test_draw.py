from __future__ import annotations

from collections import Counter

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.draw import draw, require_word, version_word
from mlhood.grading.variants.parameter import Parameter

PARAMETERS = [Parameter("slope", (1, 2, 3, 4)), Parameter("axis", (0, 1))]


def test_a_word_draws_the_same_values_on_every_machine():
    assert draw("harbour-1", "P1", PARAMETERS) == {"slope": 2, "axis": 1}


def test_the_default_is_never_drawn_and_every_other_value_is():
    drawn = Counter(draw(f"word-{n}", "P1", PARAMETERS)["slope"] for n in range(300))
    assert set(drawn) == {2, 3, 4}
    assert min(drawn.values()) > 60


def test_another_project_or_parameter_draws_on_its_own():
    words = [f"word-{n}" for n in range(50)]
    same = Parameter("other", (1, 2, 3, 4))
    assert any(draw(word, "P1", PARAMETERS)["slope"] != draw(word, "P2", PARAMETERS)["slope"] for word in words)
    assert any(draw(word, "P1", [*PARAMETERS, same])["slope"] != draw(word, "P1", [same])["other"] for word in words)


@pytest.mark.parametrize("word", ["", "?", " a", "ä", "-a", "a" * 101, "a\nb"])
def test_what_is_no_word_is_refused(word):
    with pytest.raises(GradingError, match="name of a variant"):
        require_word(word)


def test_a_group_has_a_word_of_its_own():
    assert version_word("autumn", "B") == "autumn/B"
    assert version_word("autumn", "") == "autumn"
    require_word("autumn/B")
