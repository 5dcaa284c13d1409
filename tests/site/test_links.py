"""Each fault of a page is found, and none in a page that is right."""

from __future__ import annotations

import pytest

from mlhood.site.links import link_faults


def faults(tmp_path, body: str, **files: str) -> list[str]:
    (tmp_path / "a.html").write_text(f"<h1 id='top'>A</h1>{body}", encoding="utf-8")
    (tmp_path / "b.html").write_text("<h2 id='there'>B</h2>", encoding="utf-8")
    (tmp_path / "dot.png").write_bytes(b"png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/index.html").write_text("", encoding="utf-8")
    for name, text in files.items():
        (tmp_path / f"{name}.css").write_text(text, encoding="utf-8")
    return link_faults(tmp_path)


BAD = [
    ("<a href='c.html'>c</a>", "a.html: a link leads to no file: c.html"),
    ("<a href='../c.html'>c</a>", "a.html: a link leads to no file: ../c.html"),
    ("<a href='b.html#nowhere'>c</a>", "a.html: a link leads to no anchor: b.html#nowhere"),
    ("<a href='#nowhere'>c</a>", "a.html: a link leads to no anchor: #nowhere"),
    ("<img src='c.png' alt='a dot'>", "a.html: it loads a file that is not there: c.png"),
    ("<img src='dot.png'>", "a.html: a picture without alternative text: dot.png"),
    ("<img src='dot.png' alt='_images/dot.png'>", "a.html: a picture without alternative text: dot.png"),
    ("<script src='https://example.org/a.js'></script>", "a.html: it loads something from elsewhere"),
    ("<script src='//example.org/a.js'></script>", "a.html: it loads something from elsewhere"),
    ("<link rel='stylesheet' href='https://example.org/a.css'>", "a.html: it loads something from elsewhere"),
    ("<link rel='preconnect' href='https://example.org'>", "a.html: it loads something from elsewhere"),
    ("<img alt='a dot' src='dot.png' srcset='https://example.org/a.png 2x'>", "a.html: it loads something from"),
    ("<p style='background: url(https://example.org/a.png)'>", "a.html: it loads something from elsewhere"),
    ("<style>@import 'https://example.org/a.css';</style>", "a.html: it loads something from elsewhere"),
    ("<iframe src='https://example.org'></iframe>", "a.html: it loads something from elsewhere"),
]


@pytest.mark.parametrize(("body", "fault"), BAD, ids=[body for body, _ in BAD])
def test_a_fault_is_found(body, fault, tmp_path):
    (found,) = faults(tmp_path, body)
    assert found.startswith(fault)


@pytest.mark.parametrize("style", ["@import url(https://example.org/a.css);", "a { src: url('//example.org/a') }"])
def test_a_style_sheet_that_loads_from_elsewhere_is_found(style, tmp_path):
    (found,) = faults(tmp_path, "", style=style)
    assert found.startswith("style.css: it loads something from elsewhere")


@pytest.mark.parametrize(
    "body",
    [
        "<a href='b.html#there'>b</a> <a href='#top'>top</a> <a href='in/'>in</a> <a href='in'>in</a>",
        "<a href='https://example.org'>elsewhere</a> <a href='mailto:ada@example.org'>Ada</a>",
        "<link rel='canonical' href='https://example.org/a.html'> <img src='dot.png' alt='a dot'>",
        "<img src='data:image/png;base64,AAAA' alt='a dot'> <use href='#top'/>",
    ],
)
def test_a_sound_page_has_no_faults(body, tmp_path):
    assert faults(tmp_path, body, style="a { src: url(dot.png) }") == []
