"""What is wrong with the links of finished pages: they lead nowhere, or a page loads something from elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# what a browser loads by itself, by element and attribute; of <link>, see _LOADED_LINKS
_LOADS = {
    ("audio", "src"),
    ("embed", "src"),
    ("feimage", "href"),
    ("iframe", "src"),
    ("image", "href"),
    ("image", "xlink:href"),
    ("img", "src"),
    ("img", "srcset"),
    ("input", "src"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("track", "src"),
    ("use", "href"),
    ("use", "xlink:href"),
    ("video", "poster"),
    ("video", "src"),
}
_FOLLOWED = {("a", "href"), ("area", "href"), ("form", "action"), ("link", "href")}
_LOADED_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "manifest"}
_STYLE_URL = re.compile(r"""(?:url\(\s*|@import\s+(?!url\())["']?([^"')\s;]+)""", re.IGNORECASE)
# coloured code, nine tenths of all elements: they have neither anchors nor links
_COLOURED = re.compile(r'<span class="[^"]*">|</span>')
_FILE_NAME = re.compile(r"\S+\.(?:png|svg|jpe?g|gif|webp)", re.IGNORECASE)


@dataclass
class Page:
    """The anchors of a page, what it links to, what it loads, and its pictures' alternative texts."""

    anchors: set[str] = field(default_factory=set)
    followed: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    undescribed: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's anchor and links."""
        attributes = {name: value or "" for name, value in attrs}
        self.page.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self._in_style = tag == "style"
        loads = tag == "link" and _LOADED_LINKS & set(attributes.get("rel", "").lower().split())
        for name, value in attributes.items():
            if (tag, name) in _LOADS or (loads and name == "href"):
                self.page.loaded += _candidates(value) if name == "srcset" else [value]
            elif (tag, name) in _FOLLOWED:
                self.page.followed.append(value)
        self.page.loaded += _STYLE_URL.findall(attributes.get("style", ""))
        alt = attributes.get("alt", "")
        if tag == "img" and (not alt.strip() or _FILE_NAME.fullmatch(alt.strip())):
            self.page.undescribed.append(attributes.get("src", ""))

    def handle_data(self, data: str) -> None:
        """Note what a style sheet in the page loads."""
        if self._in_style:
            self.page.loaded += _STYLE_URL.findall(data)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a style sheet."""
        self._in_style = False


def _candidates(srcset: str) -> list[str]:
    return [candidate.split()[0] for candidate in srcset.split(",") if candidate.strip()]


def read_page(html: str) -> Page:
    """Return what a page links to and loads."""
    reader = _Reader()
    reader.feed(_COLOURED.sub("", html))
    reader.close()
    return reader.page


def link_faults(folder: Path) -> list[str]:
    """Return what is wrong with the links of all pages and style sheets in a folder, a line each.

    1. A link within the site, or what a page loads, leads to no file, or to an anchor that its page does not have.
    2. A page or a style sheet loads something from another host.
    3. A picture has no alternative text, or the name of a file in its place.
    """
    folder = folder.resolve()
    pages = {path: read_page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = [fault for path in pages for fault in _page_faults(path, pages, folder)]
    for sheet in sorted(folder.rglob("*.css")):
        urls = _STYLE_URL.findall(sheet.read_text(encoding="utf-8"))
        found += _load_faults(sheet, urls, folder)
    return found


def _page_faults(path: Path, pages: dict[Path, Page], folder: Path) -> Iterator[str]:
    page, name = pages[path], path.relative_to(folder).as_posix()
    yield from _load_faults(path, page.loaded, folder)
    for source in page.undescribed:
        yield f"{name}: a picture without alternative text: {source}"
    for link in dict.fromkeys(page.followed):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = _file(path, parts.path)
        if target not in pages and not (target.is_file() and target.is_relative_to(folder)):
            yield f"{name}: a link leads to no file: {link}"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            yield f"{name}: a link leads to no anchor: {link}"


def _load_faults(path: Path, urls: Iterable[str], folder: Path) -> Iterator[str]:
    name = path.relative_to(folder).as_posix()
    for url in dict.fromkeys(urls):
        parts = urlsplit(url)
        if parts.scheme == "data" or url.startswith("#"):
            continue
        if parts.scheme or parts.netloc:
            yield f"{name}: it loads something from elsewhere: {url}"
        elif not _file(path, parts.path).is_file():
            yield f"{name}: it loads a file that is not there: {url}"


def _file(page: Path, link: str) -> Path:
    """Return the file that a link of a page leads to: for a folder its index, for an empty link the page itself."""
    if not link:
        return page
    target = Path(os.path.normpath(page.parent / unquote(link)))
    return target / "index.html" if target.is_dir() else target
