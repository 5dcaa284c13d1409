from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlhood.grading.reports.sanitize import plain, rich_text


def test_text_keeps_only_visible_characters():
    assert plain("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x07") == "red link�"
    assert plain("a\x00b\u202ec\ud800") == "a�b�c?"
    assert plain("ü\tπ\n") == "ü\tπ\n"
    assert rich_text("<b>&\"'") == "&lt;b&gt;&amp;&#34;&#39;"
    assert plain({"not": "text"}) == "{'not': 'text'}"


def test_long_text_loses_its_middle():
    cut = plain("a" * 50_000 + "end", 1_000)
    assert len(cut) < 1_100
    assert cut.startswith("a" * 500)
    assert cut.endswith("end")
    assert "cut: " in cut


@given(st.text(max_size=300))
def test_any_text_becomes_text_without_markup_that_can_be_encoded(text):
    cleaned = rich_text(plain(text.replace("`", ""), 100)).replace("<br>", "")
    assert not set("<>\x00\x1b\u202e") & set(cleaned)
    cleaned.encode("utf-8")
