"""The marking page in a browser: marking with the keyboard alone, and hostile answers that do not run."""

from __future__ import annotations

import contextlib

import pytest

from mlhood.exchange import find_browser
from tests.grading.marking.marked_class import marked_class, record_of, served
from tests.waiting import PATIENCE


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_a_class_is_marked_with_the_keyboard_alone(tmp_path):
    from playwright.sync_api import sync_playwright

    book = marked_class(tmp_path)
    with contextlib.ExitStack() as running, sync_playwright() as driver:
        server = running.enter_context(served(book))
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        try:
            tab = browser.new_page()
            tab.set_default_timeout(1000 * PATIENCE)
            errors: list[str] = []
            tab.on("pageerror", lambda error: errors.append(str(error)))
            requested: list[str] = []
            tab.on("request", lambda request: requested.append(request.url))

            def press(*keys: str, shows: str) -> None:
                for key in keys:
                    tab.keyboard.press(key)
                tab.wait_for_function("text => document.title === text || status_() === text", arg=shows)

            tab.add_init_script("window.status_ = () => document.querySelector('#status')?.textContent.trim()")
            tab.goto(server.address)
            press("n", shows="P1.2, ada: marks")
            press("1", "2", shows="✓ saved: 2 of 10")  # 12 would be too many
            assert record_of(book, "ada").tasks[1].earned == 2
            press("Backspace", shows="not marked")
            assert record_of(book, "ada").undecided
            press("a", shows="✓ saved: 4 of 10")
            press("c", "5", "n", "Escape", "ArrowRight", shows="P1.2, bob: marks")
            assert record_of(book, "ada").tasks[1].remark == "4 of 10 points given by the instructor: 5n"
            press("u", shows="P1.4, ada: marks")
            press("9", shows="✗ NOT SAVED: 9 points are too many; they are as before")
            press("2", ".", "5", shows="✓ saved: 2.5 of 5")
            press("3", shows="✓ saved: 3 of 5")
            press("Enter", shows="P1.4, bob: marks")
            assert tab.evaluate("window.owned ?? null") is None
            running.close()
            press("1", shows="✗ NOT SAVED: the server does not answer; is `mlhood marks` still running?")
            tab.keyboard.press("ArrowLeft")
            assert tab.title() == "P1.4, bob: marks"
        finally:
            browser.close()
    assert (record_of(book, "ada").bonus, record_of(book, "bob").manual_marks) == (3, {})
    assert {url.split("/")[2] for url in requested} == {server.authority}
    assert errors == []
