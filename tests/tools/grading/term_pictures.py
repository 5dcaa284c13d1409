"""Pictures of a term's steps: what each command prints, the marking page, a page of feedback, the class report."""

from __future__ import annotations

import contextlib
import html
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.errors import GradingError
from mlhood.files.paths import make_folder
from mlhood.grading.notebooks.questions import synced_questions
from mlhood.notebook_view.browser_view import open_browser
from tests.tools.grading.whole_term import MLHOOD, Step, Term

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT = 1000, 700  # pixels
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #0d1117; color: #e6edf3; font: 13px/1.5 "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: 16px 20px; white-space: pre-wrap; overflow-wrap: anywhere; }
b { color: #79c0ff; }
</style><pre><b>$ COMMAND</b>\nLINES</pre>"""
ADDRESS = "marking page: "


def draw_pictures(term: Term) -> None:
    """Draw the steps of a term into `pictures` below its folder, numbered, as PNG.

    Raises:
        BrowserError: There is no browser.
        GradingError: The marking page cannot be served.
    """
    folder = term.folder
    pictures = folder / "pictures"
    make_folder(pictures)
    with open_browser(loopback=True) as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": 200})
        for number, step in enumerate(term.steps, start=1):
            page.set_content(_terminal(step))
            page.screenshot(path=pictures / f"{number:02}-{shlex.split(step.command)[1]}.png", full_page=True)
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        _shoot(
            page,
            (folder / "feedback" / "joe" / term.project / f"{term.project}.html").as_uri(),
            pictures / "feedback.png",
        )
        _shoot(page, (folder / "class.html").as_uri(), pictures / "class-report.png")
        with _marking_page(folder / "graded") as address:
            _shoot(page, address, pictures / "marks-overview.png")
            # a question's link leads to the first answer without points; the one before it has some
            page.get_by_role("link", name=next(iter(synced_questions(term.project))), exact=True).click()
            page.get_by_role("link", name="Previous").click()
            page.screenshot(path=pictures / "marks.png")


def _terminal(step: Step) -> str:
    text = TERMINAL.replace("COMMAND", html.escape(step.command))
    return text.replace("LINES", html.escape("\n".join(step.lines)))


def _shoot(page: Page, address: str, picture: Path) -> None:
    page.goto(address)
    page.screenshot(path=picture)


@contextlib.contextmanager
def _marking_page(graded: Path) -> Iterator[str]:
    """Serve the marking page of a gradebook, and yield its address."""
    command = [*MLHOOD, "marks", str(graded), "--open", "--no-browser"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ, start_new_session=True
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line.startswith(ADDRESS):
            raise GradingError("the marking page cannot be served", got=line)
        yield line.removeprefix(ADDRESS).strip()
    finally:
        process.kill()
        process.communicate()
