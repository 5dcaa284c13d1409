"""Render a graph to a file with Netron."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import psutil

from mlhood.errors import BrowserError, ExchangeError
from mlhood.exchange.browser import INSTALL_HINT, find_browser
from mlhood.exchange.load import load
from mlhood.files.atomic import check_output, write_atomic

_SUFFIXES = (".svg", ".png", ".pdf")


def render(model: str | Path | bytes | onnx.ModelProto, output: str | Path, *, timeout: float = 60.0) -> Path:
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
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=_environment(folder),
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    try:
        yield process
    finally:
        _terminate(process)


def _environment(folder: Path) -> dict[str, str]:
    # Let the browser write to our temporary folder, which is always removed; unless the path of the browser's socket
    # in it would exceed the limit of about a hundred characters.
    if len(str(folder)) > 50:
        return dict(os.environ)
    return os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process and all its descendants, and wait until they have exited."""
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(process.pid)
        tree = [root, *root.children(recursive=True)]
    # Closing its input makes the script exit, after which Playwright's driver closes the browser and removes its files.
    if process.stdin is not None:
        process.stdin.close()
    _wait(process, tree, 5.0)
    for descendant in tree:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    _wait(process, tree, 5.0)


def _wait(process: subprocess.Popen[bytes], tree: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None and not any(_is_alive(descendant) for descendant in tree):
            return
        time.sleep(0.02)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
