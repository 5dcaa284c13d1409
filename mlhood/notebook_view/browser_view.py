"""Pages of notebooks in a headless browser: what is too wide, broken or unreadable there, and screenshots.

One browser shows all pages, in the light and the dark theme, on a wide and on a narrow screen.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from mlhood.errors import BrowserError
from mlhood.files.paths import make_folder
from mlhood.notebook_view.view_defects import CELL_ID, Defect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Theme = Literal["light", "dark"]
THEMES: dict[Theme, tuple[int, int, int]] = {"light": (255, 255, 255), "dark": (13, 17, 23)}  # the page's colour
WIDTHS = (1000, 400)  # pixels
_TALLEST = 8000  # pixels of one screenshot, below Chromium's limit of 16,384
_LOWEST_CONTRAST = 1.6  # of what is hardly seen; WCAG asks for 3 of graphics and 4.5 of text
_SMALLEST_INK = 50  # pixels, about one letter

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
_PICTURES = """() => [...document.images].filter(image => image.naturalWidth).map(
  image => [image.closest('[id^="PREFIX"]')?.id ?? '', image.src])""".replace("PREFIX", CELL_ID)


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
            if width == WIDTHS[0]:
                found |= dict.fromkeys(_hidden_ink(page, name, theme))
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


# -- ink that a transparent background leaves on the page's own colour


def _hidden_ink(page: Page, name: str, theme: Theme) -> Iterator[Defect]:
    for cell, source in page.evaluate(_PICTURES):
        pixels = _svg_pixels(page, source) if source.startswith("data:image/svg") else _pixels(source)
        if pixels is not None and hidden_pixels(pixels, THEMES[theme]) >= _SMALLEST_INK:
            what = f"text or lines of a picture with a transparent background cannot be seen in the {theme} theme"
            yield Defect(name, cell.removeprefix(CELL_ID), what, "save the picture with a white background")


def _pixels(source: str) -> np.ndarray | None:
    """Return the pixels of a data URI as uint8 of shape (height, width, 4), or None if it has no transparency."""
    from PIL import Image

    kind, _, data = source.partition(";base64,")
    if not data or kind == "data:image/jpeg":
        return None
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    return np.asarray(image.convert("RGBA")) if image.has_transparency_data else None


def _svg_pixels(page: Page, source: str) -> np.ndarray | None:
    """Return the pixels of an SVG drawn on nothing, in the page's theme."""
    sheet = page.context.new_page()
    sheet.set_content('<body style="margin:0;background:none"><img style="display:block">')
    sheet.locator("img").evaluate("(image, source) => { image.src = source; return image.decode(); }", source)
    png = sheet.locator("img").screenshot(omit_background=True)
    sheet.close()
    return _pixels(f"data:image/png;base64,{base64.b64encode(png).decode()}")


def hidden_pixels(pixels: np.ndarray, background: tuple[int, int, int]) -> int:
    """Return how many pixels belong to thin marks, such as letters, that hardly differ from the page around them.

    Args:
        pixels: uint8 of shape (height, width, 4), red to alpha.
        background: Colour of the page, red to blue, 0 to 255.
    """
    from scipy import ndimage

    visible = pixels[..., 3] > 127
    near_nothing = ndimage.binary_dilation(pixels[..., 3] < 26, iterations=3)
    faint = _contrast(pixels[..., :3], background) < _LOWEST_CONTRAST
    marks = np.empty(visible.shape, np.int32)
    ndimage.label(visible, structure=np.ones((3, 3)), output=marks)
    numbers = np.arange(1, marks.max() + 1)
    sizes, faint_sizes, thin_sizes = (
        np.asarray(ndimage.sum_labels(mask, marks, numbers)) for mask in (visible, faint, near_nothing)
    )
    return int(sizes[(faint_sizes > 0.8 * sizes) & (thin_sizes > 0.6 * sizes)].sum())


def _contrast(colours: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Return WCAG's contrast ratio, 1 to 21, of colours (..., 3) with a background."""
    light, dark = _luminance(colours), _luminance(np.array(background))
    return (np.maximum(light, dark) + 0.05) / (np.minimum(light, dark) + 0.05)


def _luminance(colours: np.ndarray) -> np.ndarray:
    """Return WCAG's relative luminance, 0 to 1, of sRGB colours (..., 3)."""
    shares = colours / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])
