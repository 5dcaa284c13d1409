"""Draw one graph with Netron in a browser: a program of its own, which `render` starts and ends.

    python -P draw.py MODEL OUTPUT BROWSER SECONDS REPORT

It imports nothing of mlhood, so it starts fast. It lives as long as its standard input is open: should the
process that started it die in whatever way, it ends too, and with it the browser. What goes wrong is written
to REPORT as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import netron
from playwright.sync_api import Browser, Error, Page, Route, sync_playwright

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
# Acrobat shows no page longer than 200 inches, at 96 pixels each.
_LONGEST_PAGE = 200 * 96 - 1

# Netron puts a trap into window.eval, which Playwright needs.
_KEEP_EVAL = "const kept = eval; Object.defineProperty(window, 'eval', {get: () => kept, set: () => {}});"


def draw(model: Path, output: Path, browser: Path, seconds: float) -> None:
    """Write the graph of `model` to `output`: SVG, PNG or PDF by its suffix."""
    address = netron.serve("model.onnx", bytearray(model.read_bytes()), ("127.0.0.1", 0))
    try:
        with _browser(browser, seconds) as chromium:
            page = _netron_page(chromium, f"http://{address[0]}:{address[1]}/", seconds)
            if output.suffix == ".png":
                _export(page, output)
                return
            drawing = output.with_name("netron.svg")
            _export(page, drawing)
            svg = ElementTree.fromstring(drawing.read_text(encoding="utf-8"))  # noqa: S314 (Netron wrote it)
            if output.suffix == ".pdf":
                _print(chromium, svg, output)
            else:
                output.write_bytes(_standalone(svg))
    finally:
        netron.stop(address)


@contextlib.contextmanager
def _browser(program: Path, seconds: float) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # No request of the browser's own leaves the machine; a container's small /dev/shm is not relied upon.
        arguments = ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(
            executable_path=program, headless=True, args=arguments, timeout=seconds * 1000
        )
        try:
            yield chromium
        finally:
            chromium.close()


def _netron_page(browser: Browser, url: str, seconds: float) -> Page:
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    context.set_default_timeout(seconds * 1000)
    # The notice about cookies would wait for a click for ever; this is the cookie that the click sets.
    context.add_cookies([{"name": "consent", "value": "1", "url": url}])
    context.route("**/*", lambda route: _answer(route, url))
    context.add_init_script(_KEEP_EVAL)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("body.default, body.alert, body.message, body.notification")
    if "default" not in (page.get_attribute("body", "class") or "").split():
        raise Error(page.inner_text("#message-text") or "Netron shows a message instead of the graph")
    return page


def _answer(route: Route, url: str) -> None:
    """Let only the local server answer, and mend two things of its page."""
    asked = route.request.url
    if not asked.startswith(url):
        route.abort()
    elif asked == url:
        # The page refuses to work once it is half a year old, which it reads from this line.
        text = route.fetch().text().replace('<meta name="date"', '<meta name="released"')
        route.fulfill(body=text, content_type="text/html")
    elif asked == url + "view.js":
        # Brackets that only fonts for Chinese and Japanese have become their twins among the mathematical
        # signs.
        text = route.fetch().text().replace("\\u3008", "\\u27e8").replace("\\u3009", "\\u27e9")
        route.fulfill(body=text, content_type="text/javascript")
    else:
        route.continue_()


def _export(page: Page, output: Path) -> None:
    with page.expect_download() as download:
        page.evaluate("name => window.__view__.export(name)", output.name)
    download.value.save_as(output)


def _standalone(svg: ElementTree.Element) -> bytes:
    width, height = svg.get("width", "0"), svg.get("height", "0")
    svg.set("viewBox", f"0 0 {width} {height}")  # so that it scales wherever it is put
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(svg, encoding="utf-8", xml_declaration=True)


def _print(browser: Browser, svg: ElementTree.Element, output: Path) -> None:
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    _name_nodes(svg)
    scale = min(1.0, _LONGEST_PAGE / max(width, height))
    page = browser.new_page()
    style = "html, body { margin: 0; background: #fff } svg { display: block; width: 100vw; height: auto }"
    body = _standalone(svg).decode("utf-8").split("?>", 1)[1]
    page.set_content(f"<!doctype html><meta charset=utf-8><title>Netron</title><style>{style}</style>{body}")
    page.pdf(
        path=output,
        width=f"{width * scale}px",
        # One pixel more, lest rounding start a second page.
        height=f"{height * scale + 1}px",
        print_background=True,
        page_ranges="1",
    )


def _name_nodes(svg: ElementTree.Element) -> None:
    """Lay each node's name under its header, where a search in the PDF finds it and the eye does not."""
    for node in svg.iter(f"{{{_SVG}}}g"):
        name = node.get("id", "").removeprefix("node-name-")
        if "graph-node" not in node.get("class", "").split() or name == node.get("id"):
            continue
        text = ElementTree.Element(f"{{{_SVG}}}text", {"x": "7", "y": "5", "font-size": "3"})
        text.text = name
        node.insert(0, text)


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin: its lock would be held when the interpreter shuts down
    os._exit(3)


def main(arguments: list[str]) -> int:
    """Draw as the command line says; 0 if the drawing is there."""
    model, output, browser, seconds, report = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    problem: dict[str, Any] = {}
    try:
        draw(Path(model), Path(output), Path(browser), float(seconds))
    except Error as error:
        problem = {"got": (error.message.strip().splitlines() or [repr(error)])[0][:300]}
    except OSError as error:
        problem = {"got": str(error)}
    if problem:
        Path(report).write_text(json.dumps(problem), encoding="utf-8")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
