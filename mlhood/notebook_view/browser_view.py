"""Pages of notebooks in a headless browser: what is too wide or broken there, and screenshots.

One browser shows all pages, in the light and the dark theme, on a wide and on a narrow screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mlhood.errors import BrowserError
from mlhood.files.paths import make_folder
from mlhood.notebook_view.view_defects import CELL_ID, Defect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
WIDTHS = (1000, 400)  # pixels
_TALLEST = 8000  # pixels of one screenshot, below Chromium's limit of 16,384

# the outermost elements that reach beyond the right edge, unless a box around them scrolls
_TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolls = node => node && node !== document.body &&
    (['auto', 'scroll', 'hidden'].includes(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
  const wide = [...document.body.querySelectorAll('*')].filter(
    node => node.getBoundingClientRect().right > width + 1 && !scrolls(node.parentElement));
  const inner = wide.filter(node => !wide.some(other => node !== other && node.contains(other)));
  const found = inner.map(node => [node.closest('[id^="PREFIX"]')?.id ?? '', node.localName,
    node.closest('[role=img]')?.ariaLabel ?? node.textContent.trim().slice(0, 60),
    Math.ceil(node.getBoundingClientRect().right - width)]);
  return found.length ? found : [['', 'body', '', document.documentElement.scrollWidth - width]];
}""".replace("PREFIX", CELL_ID)
_BROKEN = """() => [...document.images].filter(image => !image.complete || !image.naturalWidth).map(
  image => [image.closest('[id^="PREFIX"]')?.id ?? '', image.alt])""".replace("PREFIX", CELL_ID)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the browser that `mlhood view` uses, and close it at the end. It reaches no network.

    Raises:
        BrowserError: There is none.
    """
    from playwright.sync_api import sync_playwright

    from mlhood.exchange import find_browser
    from mlhood.exchange.render import INSTALL_HINT

    executable = find_browser()
    if executable is None:
        raise BrowserError("no browser found", todo=INSTALL_HINT)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]
        browser = playwright.chromium.launch(executable_path=executable, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def view(browser: Browser, html: str, name: str, screenshots: Path | None = None) -> list[Defect]:
    """Show a page in both themes and both widths; return what is wrong with it.

    Args:
        browser: From `open_browser`.
        html: A page of `github_page`.
        name: The notebook's name in messages and in the names of screenshots.
        screenshots: A folder for screenshots, `NAME-THEME-WIDTH-PART.png`; none are made without.
    """
    found: dict[Defect, None] = {}  # a set that keeps its order
    for theme in THEMES:
        for width in WIDTHS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
            context.set_default_timeout(300_000)  # milliseconds: only what hangs takes longer on a busy machine
            page = context.new_page()
            page.set_content(html, wait_until="load")
            found |= dict.fromkeys(_layout_defects(page, name, width))
            if screenshots is not None:
                _take_screenshots(page, screenshots, f"{name}-{theme}-{width}")
            context.close()
    return list(found)


def _layout_defects(page: Page, name: str, width: int) -> Iterator[Defect]:
    for cell, tag, text, excess in page.evaluate(_TOO_WIDE):
        what = f"<{tag}> {text!r} is {excess} pixels too wide for a screen of {width}"
        yield Defect(name, cell.removeprefix(CELL_ID), what, "break it into parts, or put it where a box scrolls")
    for cell, alt in page.evaluate(_BROKEN):
        todo = "attach the picture to the cell, or run the notebook again"
        yield Defect(name, cell.removeprefix(CELL_ID), f"a broken picture: {alt[:60]!r}", todo)


def _take_screenshots(page: Page, folder: Path, stem: str) -> None:
    make_folder(folder)
    width, height = page.evaluate("() => [innerWidth, document.documentElement.scrollHeight]")
    for part, top in enumerate(range(0, height, _TALLEST), 1):
        clip = {"x": 0, "y": top, "width": width, "height": min(_TALLEST, height - top)}
        page.screenshot(path=folder / f"{stem}-{part}.png", full_page=True, clip=clip)  # pyright: ignore[reportArgumentType]
