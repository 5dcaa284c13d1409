from __future__ import annotations

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.templates import render, vary


def test_every_occurrence_of_a_phrase_is_replaced():
    text = "axis 0, then axis 0"
    assert vary(text, {"axis 0": "axis {{ axis }}"}, {"axis": 1}) == "axis 1, then axis 1"


def test_of_overlapping_phrases_the_longer_one_is_replaced():
    templates = {"a": "{{ x }}", "ab": "{{ y }}"}
    assert vary("ab a", templates, {"x": "1", "y": "2"}) == "2 1"


def test_a_replacement_is_not_searched_again():
    assert vary("a b", {"a": "{{ x }}", "b": "{{ y }}"}, {"x": "b", "y": "c"}) == "b c"


def test_a_phrase_may_have_signs_of_patterns_and_branches():
    templates = {"x[0] + (1)": "{% if deep %}x[1]{% else %}x[0] + (1){% endif %}"}
    assert vary("y = x[0] + (1)", templates, {"deep": True}) == "y = x[1]"
    assert vary("y = x[0] + (1)", templates, {"deep": False}) == "y = x[0] + (1)"


def test_html_is_not_escaped_and_the_last_newline_stays():
    assert render("{{ a }}\n", {"a": "x < y"}) == "x < y\n"


@pytest.mark.parametrize("template", ["{{ unknown }}", "{{ a", "{% if %}"])
def test_a_wrong_template_names_itself_and_the_parameters(template):
    with pytest.raises(GradingError) as caught:
        render(template, {"a": 1})
    assert caught.value.parts["where"] == template
    assert "parameters a" in caught.value.parts["expected"]
