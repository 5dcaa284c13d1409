"""Draw one graph with Netron in a browser: a script that `render` runs in a subprocess.

    python -P draw.py MODEL OUTPUT BROWSER SECONDS REPORT

It imports nothing of mlhood, so it starts fast. It exits when its standard input is closed: if the parent process
dies for any reason, the script and its browser terminate, too. Errors are written to REPORT as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import netron
from playwright.sync_api import Browser, Error, Page, Route, sync_playwright

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
# Acrobat limits a page to 200 inches, of 96 pixels each.
_MAX_PAGE_PIXELS = 200 * 96 - 1

# Netron replaces window.eval, which Playwright needs, with a function that throws.
_KEEP_EVAL = "const original = eval; Object.defineProperty(window, 'eval', {get: () => original, set: () => {}});"


def draw(model: Path, output: Path, browser: Path, seconds: float) -> None:
    """Write the graph of `model` to `output` as SVG, PNG or PDF, depending on its suffix."""
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
        # Block the browser's own requests to the network; do not rely on a container's small /dev/shm.
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
    # Accept the cookie notice, which would otherwise wait for a click.
    context.add_cookies([{"name": "consent", "value": "1", "url": url}])
    context.route("**/*", lambda route: _handle_request(route, url))
    context.add_init_script(_KEEP_EVAL)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("body.default, body.alert, body.message, body.notification")
    if "default" not in (page.get_attribute("body", "class") or "").split():
        raise Error(page.inner_text("#message-text") or "Netron shows a message instead of the graph")
    return page


def _handle_request(route: Route, url: str) -> None:
    """Allow requests to the local server only, and patch two of its responses."""
    requested = route.request.url
    if not requested.startswith(url):
        route.abort()
    elif requested == url:
        # The page refuses to work half a year after its release, whose date it reads from this tag.
        text = route.fetch().text().replace('<meta name="date"', '<meta name="released"')
        route.fulfill(body=text, content_type="text/html")
    elif requested == url + "view.js":
        # Replace angle brackets that only CJK fonts contain with the mathematical ones.
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
    svg.set("viewBox", f"0 0 {width} {height}")  # makes the drawing scalable
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(svg, encoding="utf-8", xml_declaration=True)


def _print(browser: Browser, svg: ElementTree.Element, output: Path) -> None:
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    _name_nodes(svg)
    scale = min(1.0, _MAX_PAGE_PIXELS / max(width, height))
    page = browser.new_page()
    style = "html, body { margin: 0; background: #fff } svg { display: block; width: 100vw; height: auto }"
    body = _standalone(svg).decode("utf-8").split("?>", 1)[1]
    page.set_content(f"<!doctype html><meta charset=utf-8><title>Netron</title><style>{style}</style>{body}")
    page.pdf(
        path=output,
        width=f"{width * scale}px",
        # One extra pixel, so that rounding does not cause a second page.
        height=f"{height * scale + 1}px",
        print_background=True,
        page_ranges="1",
    )


def _name_nodes(svg: ElementTree.Element) -> None:
    """Place each node's name behind its header: invisible, but found by a text search in the PDF."""
    for node in svg.iter(f"{{{_SVG}}}g"):
        name = node.get("id", "").removeprefix("node-name-")
        if "graph-node" not in node.get("class", "").split() or name == node.get("id"):
            continue
        text = ElementTree.Element(f"{{{_SVG}}}text", {"x": "7", "y": "5", "font-size": "3"})
        text.text = name
        node.insert(0, text)


def _exit_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin: its lock would still be held at interpreter shutdown
    os._exit(3)


def main(arguments: list[str]) -> int:
    """Draw according to the command line; return 0 on success."""
    model, output, browser, seconds, report = arguments
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        draw(Path(model), Path(output), Path(browser), float(seconds))
        return 0
    except Error as error:
        reason = (error.message.strip().splitlines() or [repr(error)])[0][:300]
    except OSError as error:
        reason = str(error)
    Path(report).write_text(json.dumps({"got": reason}), encoding="utf-8")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
