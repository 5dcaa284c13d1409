from __future__ import annotations

import base64
import html
import io
import re

import pytest
from nbformat.v4 import new_code_cell, new_output
from PIL import Image

from mlhood.grading.reports.outputs import MAX_OUTPUTS, MAX_PIXELS, PageBudget, data_uri
from mlhood.grading.reports.render import _environment
from mlhood.measure.measurement import Count
from mlhood.measure.table import MIME, Table
from tests.grading.reports import attacks


def shown(*outputs, budget: PageBudget | None = None) -> str:
    cell = new_code_cell(outputs=list(outputs))
    page = _environment().from_string('{% import "macros.html.j2" as page %}{{ page.outputs(shown) }}')
    return re.sub(r">\s+<", "><", page.render(shown=(budget or PageBudget()).outputs(cell))).strip()


# -- pictures


@pytest.mark.parametrize("alt", ["bars: 1 and 2", '"><script>', "a" * 5000])
def test_a_picture_keeps_its_alternative_text(alt):
    output = new_output("display_data", {"image/png": attacks.png(2, 2)}, metadata={"image/png": {"alt": alt}})
    (text,) = re.findall(r'alt="([^"]*)"', shown(output))
    assert "<" not in text
    assert html.unescape(text).startswith(alt[:100])
    assert len(text) < 1200


@pytest.mark.parametrize("metadata", [{}, {"image/png": None}, {"image/png": {}}])
def test_a_picture_without_alternative_text_says_where_it_is_from(metadata):
    output = new_output("display_data", {"image/png": attacks.png(2, 2)}, metadata=metadata)
    assert 'alt="a picture from your notebook"' in shown(output)


def bomb() -> str:
    packed = io.BytesIO()
    Image.new("1", (5000, MAX_PIXELS // 5000 + 1)).save(packed, "PNG")
    return base64.b64encode(packed.getvalue()).decode()


@pytest.mark.parametrize(
    "data", ["no base64!", base64.b64encode(b"GIF89a").decode(), ["a", "list"], bomb(), "A" * (3 << 20), ""]
)
def test_an_invalid_picture_is_refused(data):
    assert data_uri(data) is None
    assert data_uri(attacks.png()) == f"data:image/png;base64,{attacks.png()}"


def test_a_damaged_picture_is_replaced_by_a_note():
    assert "damaged or too large" in shown(attacks.display({"image/png": "x"}))


# -- outputs


def test_svg_is_replaced_by_a_note():
    html = shown(attacks.display({"image/svg+xml": "<svg><circle/></svg>", "text/plain": "a figure"}))
    assert "a figure" in html
    assert "look at it in your notebook" in html
    assert "<svg" not in html


def table() -> Table:
    counts = Table("T9.counts", ("a",), ("b",), "bytes", "Bytes & <more>", "count")
    counts["a", "b"] = Count(7)
    return counts


def test_a_table_is_rendered_from_its_numbers_not_from_its_html():
    data = table().to_dict()
    html = shown(attacks.display({MIME: data, "text/html": "<table><tr><td>999</td></tr></table>"}))
    assert "Bytes &amp; &lt;more&gt;" in html
    assert "7" in html
    assert "999" not in html


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"rows": "a"},
        {"cells": [["a", "b", {"html": "<b>"}]]},
        {"id": ["a"]},
        {"unit": {}},
        {"columns": [["b"]]},
    ],
)
def test_a_forged_table_is_not_shown(change):
    html = shown(
        attacks.display({MIME: table().to_dict() | change, "text/html": "<table><tr><td>999</td></tr></table>"})
    )
    assert "it is damaged or too large" in html
    assert "999" not in html


@pytest.mark.parametrize("markup", attacks.HTML)
def test_of_html_only_the_text_beside_it_is_shown(markup):
    html = shown(attacks.display({"text/html": markup, "text/plain": "a < b"}))
    assert html == '<div class="output"><pre>a &lt; b</pre></div>'


def test_the_number_of_outputs_and_the_size_of_a_page_are_limited():
    stream = new_output("stream", name="stdout", text="line")
    assert f"{3} more outputs are not shown" in shown(*[stream] * (MAX_OUTPUTS + 3))
    html = shown(stream, new_output("stream", name="stdout", text="x" * 99), budget=PageBudget(60))
    assert "line" in html
    assert "x" * 99 not in html
    assert "largest size" in html


def test_an_empty_output_is_not_shown():
    assert shown(new_output("stream", name="stdout", text="\n")) == ""
