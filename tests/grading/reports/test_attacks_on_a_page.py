"""A page of feedback full of attacks, opened in a browser: nothing runs, nothing is asked for, nothing breaks out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlhood.exchange import find_browser
from mlhood.grading.reports.feedback_page import feedback_page
from mlhood.grading.reports.page import POLICY
from tests.grading.reports import attacks


@pytest.fixture
def page(course):
    found = attacks.feedback(course.notebook(), "T9")
    assert not sum(len(cell.outputs) > 8 for cell in found.notebook.cells if cell.cell_type == "code")
    assert sum(len(cell.get("outputs", [])) for cell in found.notebook.cells) == len(attacks.outputs())
    return feedback_page(found)


def look(html: str, folder: Path) -> dict:
    """What a browser makes of a page: requests, messages, and what its own tree holds."""
    from playwright.sync_api import sync_playwright

    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    asked: list[str] = []
    refused: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        try:
            tab = browser.new_page()
            tab.on("request", lambda request: asked.append(request.url))
            tab.on("requestfailed", lambda request: refused.append(request.url) if request.failure == "csp" else None)
            tab.goto(file.as_uri())
            tab.wait_for_timeout(300)  # for what would start late, such as a refresh or an error of a picture
            # the page's policy holds for its own scripts only, not for what the driver asks
            seen = tab.evaluate(
                """() => ({owned: window.owned ?? null, title: document.title, address: location.href,
                tags: [...new Set([...document.querySelectorAll('*')].map(one => one.localName))],
                attributes: [...new Set([...document.querySelectorAll('*')].flatMap(one => one.getAttributeNames()))],
                links: [...document.querySelectorAll('[href],[src]')].map(
                    one => one.getAttribute('href') ?? one.getAttribute('src')),
                headings: [...document.querySelectorAll('h1')].length,
                outside: document.body.children.length})"""
            )
        finally:
            browser.close()
    return seen | {"asked": [url for url in asked if url != file.as_uri()], "refused": refused, "file": file.as_uri()}


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_nothing_runs_and_nothing_is_asked_for(page, tmp_path):
    seen = look(page, tmp_path)
    assert seen["owned"] is None
    assert seen["address"] == seen["file"]
    assert seen["title"].startswith("T9 Double </title><script>")
    assert [url for url in seen["asked"] if not url.startswith("data:image/png;base64,")] == []
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in seen["links"])
    assert any(link.startswith("data:image/png;base64,") for link in seen["links"])
    forbidden = {
        "script",
        "iframe",
        "object",
        "embed",
        "svg",
        "math",
        "form",
        "input",
        "base",
        "link",
        "template",
        "video",
    }
    assert not forbidden & set(seen["tags"])
    assert not [name for name in seen["attributes"] if name.startswith("on")]
    # the frame is whole: one title, and header and main alone in the body
    assert (seen["headings"], seen["outside"]) == (1, 2)


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_the_attacks_run_where_a_page_lets_them(tmp_path):
    seen = look(f"<!DOCTYPE html><html><body>{''.join(attacks.HTML[:5])}</body></html>", tmp_path)
    assert seen["owned"] == 1
    assert seen["title"] == "owned"
    assert any(url.startswith(attacks.SERVER) for url in seen["asked"])


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_the_policy_holds_by_itself(page, tmp_path):
    """If the sanitiser let everything through, the browser would still refuse."""
    unsafe = page.replace("</main>", f"{''.join(attacks.HTML[:8])}</main>")
    assert unsafe != page
    seen = look(unsafe, tmp_path)
    assert seen["owned"] is None
    assert "script" in seen["tags"]
    wanted = [url for url in seen["asked"] if url.startswith("http")]
    assert wanted
    assert sorted(wanted) == sorted(url for url in seen["refused"] if url.startswith("http"))


def test_the_policy_comes_before_anything_of_the_students(page):
    assert page.index(POLICY) < page.index("<title>")
    assert "script-src" not in POLICY
    assert "default-src 'none'" in POLICY


def test_no_attribute_and_no_tag_comes_from_a_student(page):
    tags = re.findall(r"<[a-zA-Z][^>]*>", page.partition("<main>")[2])
    names = {re.match(r"<([a-zA-Z0-9]+)", tag).group(1) for tag in tags}
    allowed = {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "p", "br", "code", "pre", "div", "span"}
    assert names <= allowed | {"section", "h2", "dl", "dt", "dd", "a", "img"}
    assert "owned" not in "".join(tags)
    assert attacks.SERVER not in "".join(tags)
