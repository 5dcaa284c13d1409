"""Render a graph to a file with Netron, in the system's Chromium, Chrome or Edge, or in Playwright's own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import psutil

from mlhood.errors import BrowserError, ExchangeError
from mlhood.exchange.load import load
from mlhood.files.atomic import check_output, write_atomic

_SUFFIXES = (".svg", ".png", ".pdf")
BROWSER_VARIABLE = "MLHOOD_BROWSER"
INSTALL_HINT = (
    "install Chromium, Chrome or Edge, or run `python -m playwright install chromium`; "
    f"if it is installed in an unusual location, set {BROWSER_VARIABLE} to its executable"
)

_CHROME = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_EDGE = ("microsoft-edge", "microsoft-edge-stable", "msedge")
_MAC = ("Google Chrome", "Chromium", "Microsoft Edge")
_WINDOWS = (
    "Google/Chrome/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
    "Chromium/Application/chrome.exe",
)
# Playwright's own executables, relative to the folder of one revision.
_PLAYWRIGHT = (
    "chrome-linux*/chrome",
    "chrome-linux*/headless_shell",
    "chrome-headless-shell-linux*/chrome-headless-shell",
    "chrome-mac*/*.app/Contents/MacOS/*",
    "chrome-mac*/headless_shell",
    "chrome-headless-shell-mac*/chrome-headless-shell",
    "chrome-win*/chrome.exe",
    "chrome-win*/headless_shell.exe",
    "chrome-headless-shell-win*/chrome-headless-shell.exe",
)


def render(model: str | Path | bytes | onnx.ModelProto, output: str | Path, *, timeout: float = 300.0) -> Path:
    """Draw `model` as Netron shows it, with Netron's own page in a headless browser.

    The drawing is cropped to the graph. An SVG is self-contained (styles included), a PNG has twice the resolution,
    a PDF is one page of vectors and text in which a text search for a node's name finds the node. No network is
    used. The server and the browser are always terminated: on return, error, timeout and interrupt.

    Args:
        model: What `load` takes.
        output: A file that ends in .svg, .png or .pdf, in an existing folder.
        timeout: Limit in seconds.

    Returns:
        `output`, as a `Path`.

    Raises:
        ExchangeError: The model cannot be read, or `output` has another suffix.
        BrowserError: There is no browser, or it did not draw the graph.
        OutputError: The file cannot be written.
    """
    output = Path(output)
    suffix = output.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ExchangeError(
            "the output format must be SVG, PNG or PDF",
            where=output,
            expected="a name that ends in " + ", ".join(_SUFFIXES),
        )
    check_output(output)
    proto = load(model)
    browser = find_browser()
    if browser is None:
        raise BrowserError("no browser found", todo=INSTALL_HINT)
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        drawing = Path(folder) / f"drawing{suffix}"
        _draw(_source(model, proto, Path(folder)), drawing, browser, timeout)
        return write_atomic(output, drawing.read_bytes())


def _source(model: str | Path | bytes | onnx.ModelProto, proto: onnx.ModelProto, folder: Path) -> Path:
    if isinstance(model, (str, Path)):
        return Path(model).resolve()
    copy = folder / "model.onnx"
    copy.write_bytes(proto.SerializeToString())
    return copy


def _draw(model: Path, drawing: Path, browser: Path, timeout: float) -> None:
    report = drawing.with_name("report.json")
    # A subprocess: a notebook's event loop does not interfere, Ctrl-C does not reach the browser before us, and
    # there is one process to kill. -P keeps this folder out of its import path. Its own limit is only a backup.
    script = Path(__file__).with_name("draw.py")
    command = [sys.executable, "-P", *map(str, (script, model, drawing, browser, 2 * timeout, report))]
    with _process(command, drawing.parent) as process:
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise BrowserError(
                "the browser did not draw the graph in time",
                where=browser,
                expected=f"{timeout:g} s at most",
                todo="try again with a larger timeout; a graph of thousands of nodes takes minutes",
            ) from error
    if code == 0 and drawing.is_file():
        return
    reason = json.loads(report.read_text(encoding="utf-8"))["got"] if report.is_file() else f"exit code {code}"
    raise BrowserError("the browser did not draw the graph", where=browser, got=reason, todo=INSTALL_HINT)


@contextlib.contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Let the browser write to our temporary folder, which is always removed; unless the path of the browser's socket
    # in it would exceed the limit of about a hundred characters.
    variables = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder)) if len(str(folder)) <= 50 else {}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=os.environ | variables,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    try:
        yield process
    finally:
        _terminate(process)


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process and all its descendants, and wait until they have exited."""
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        tree = psutil.Process(process.pid).children(recursive=True)
    # Closing its input makes the script exit, after which Playwright's driver closes the browser and removes its files.
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    _, alive = psutil.wait_procs(tree, timeout=5)
    for each in (process, *alive):
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()
    psutil.wait_procs(alive, timeout=5)


def find_browser() -> Path | None:
    """Return the browser that `render` uses, or None if there is none.

    The first of: the environment variable `MLHOOD_BROWSER`; Chromium, Chrome and Edge on the PATH and in their
    usual locations; Playwright's own Chromium.

    Raises:
        BrowserError: `MLHOOD_BROWSER` is set, but not to an executable.
    """
    name = os.environ.get(BROWSER_VARIABLE)
    if not name:
        return next((path for path in _candidates() if _is_executable(path)), None)
    executable = shutil.which(name)
    if executable is None:
        raise BrowserError(
            f"{BROWSER_VARIABLE} does not name an executable",
            expected="the executable of Chromium, Chrome or Edge",
            got=name,
            todo=f"correct {BROWSER_VARIABLE}, or unset it to search for a browser",
        )
    return Path(executable)


def _candidates() -> Iterator[Path]:
    for command in (*_CHROME, *_EDGE):
        if executable := shutil.which(command):
            yield Path(executable)
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), Path.home() / "Applications"):
            yield from (folder / f"{name}.app" / "Contents" / "MacOS" / name for name in _MAC)
    if sys.platform == "win32":
        for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            if folder := os.environ.get(variable):
                yield from (Path(folder) / name for name in _WINDOWS)
    folder = _playwright_folder()
    for pattern in _PLAYWRIGHT:
        yield from sorted(folder.glob(f"chromium*/{pattern}"), reverse=True)


def _playwright_folder() -> Path:
    configured = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if configured and configured != "0":
        return Path(configured)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "ms-playwright"


def _is_executable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return False
