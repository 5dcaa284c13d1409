"""A feedback page full of attacks, opened in a browser: nothing runs, nothing is requested, nothing escapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlhood.exchange import find_browser
from mlhood.grading.reports.feedback import feedback_page
from tests.grading.reports import attacks
from tests.waiting import PATIENCE, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture
def page(course):
    notebook = attacks.spread(course.notebook(), "T9")
    assert not sum(len(cell.outputs) > 8 for cell in notebook.cells if cell.cell_type == "code")
    assert sum(len(cell.get("outputs", [])) for cell in notebook.cells) == len(attacks.outputs())
    return feedback_page(attacks.record("T9"), notebook)


def open_page(html: str, folder: Path, complete: Callable[[dict], bool] = lambda seen: True) -> dict:
    """Open a page in a browser; return its requests, and what its DOM contains, as soon as that is complete."""
    from playwright.sync_api import sync_playwright

    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    requested: list[str] = []
    blocked: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        try:
            tab = browser.new_page()
            tab.on("request", lambda request: requested.append(request.url))
            tab.on("requestfailed", lambda request: blocked.append(request.url) if request.failure == "csp" else None)
            tab.set_default_timeout(1000 * PATIENCE)
            tab.goto(file.as_uri())
            tab.wait_for_timeout(300)  # for what would start late, such as a refresh or the error of a picture
            wait_until(lambda: complete(look(tab, file, requested, blocked)))
            return look(tab, file, requested, blocked)
        finally:
            browser.close()


def look(tab: Page, file: Path, requested: list[str], blocked: list[str]) -> dict:
    # the policy applies to the page's own scripts, not to those of the driver
    seen = tab.evaluate(
        """() => ({owned: window.owned ?? null, title: document.title, address: location.href,
                tags: [...new Set([...document.querySelectorAll('*')].map(node => node.localName))],
                attributes: [...new Set([...document.querySelectorAll('*')].flatMap(node => node.getAttributeNames()))],
                links: [...document.querySelectorAll('[href],[src]')].map(
                    node => node.getAttribute('href') ?? node.getAttribute('src')),
                headings: [...document.querySelectorAll('h1')].length,
                outside: document.body.children.length})"""
    )
    requests = [url for url in requested if url != file.as_uri()]
    return seen | {"requested": requests, "blocked": blocked, "file": file.as_uri()}


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_nothing_runs_and_nothing_is_requested(page, tmp_path):
    seen = open_page(page, tmp_path)
    assert seen["owned"] is None
    assert seen["address"] == seen["file"]
    assert seen["title"].startswith("T9 Double </title><script>")
    assert [url for url in seen["requested"] if not url.startswith("data:image/png;base64,")] == []
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in seen["links"])
    assert any(link.startswith("data:image/png;base64,") for link in seen["links"])
    active = {"script", "iframe", "object", "embed", "svg", "math", "video", "template"}
    assert not (active | {"form", "input", "base", "link"}) & set(seen["tags"])
    assert not [name for name in seen["attributes"] if name.startswith("on")]
    # the page is intact: one title, and only header and main in the body
    assert (seen["headings"], seen["outside"]) == (1, 2)


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_the_attacks_succeed_on_an_unsafe_page(tmp_path):
    def succeeded(seen):
        requested = any(url.startswith(attacks.SERVER) for url in seen["requested"])
        return (seen["owned"], seen["title"], requested) == (1, "owned", True)

    seen = open_page(f"<!DOCTYPE html><html><body>{''.join(attacks.HTML[:5])}</body></html>", tmp_path, succeeded)
    assert succeeded(seen)


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_the_policy_is_sufficient_by_itself(page, tmp_path):
    """Even if the sanitiser let everything through, the browser would block it."""
    unsafe = page.replace("</main>", f"{''.join(attacks.HTML[:8])}</main>")
    assert unsafe != page

    def all_blocked(seen):
        requested, blocked = (
            sorted(url for url in seen[key] if url.startswith("http")) for key in ("requested", "blocked")
        )
        return requested == blocked != []

    seen = open_page(unsafe, tmp_path, all_blocked)
    assert all_blocked(seen)
    assert seen["owned"] is None
    assert "script" in seen["tags"]


def test_the_policy_precedes_all_content(page):
    head, _, _ = page.partition("<title>")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', head)
    assert "script-src" not in policy
    assert "default-src 'none'" in policy
    assert "&#" not in policy


def test_no_attribute_and_no_tag_comes_from_a_student(page):
    tags = re.findall(r"<[a-zA-Z][^>]*>", page.partition("<main>")[2])
    names = {re.match(r"<([a-zA-Z0-9]+)", tag).group(1) for tag in tags}
    allowed = {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "p", "br", "code", "pre", "div", "span"}
    assert names <= allowed | {"section", "h2", "dl", "dt", "dd", "a", "img"}
    assert "owned" not in "".join(tags)
    assert attacks.SERVER not in "".join(tags)
