"""Netron's picture of a graph as a file."""

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
from mlhood.exchange.browser import HOW_TO_GET_ONE, find_browser
from mlhood.exchange.load import load
from mlhood.files.atomic import check_output, write_whole

_KINDS = (".svg", ".png", ".pdf")


def render(model: str | Path | bytes | onnx.ModelProto, output: str | Path, *, timeout: float = 60.0) -> Path:
    """Draw `model` as Netron shows it, through Netron's own page in a browser without a window.

    The drawing is cut to the graph. An SVG stands for itself (its styles are in it), a PNG has twice the
    resolution, a PDF is one page of vectors and text; in the PDF each node's name lies under its header, so
    that a search for it finds the node. No network is used. The server and the browser end in any case: when
    this returns, fails, takes too long or is interrupted.

    Args:
        model: What `load` takes.
        output: A file that ends in .svg, .png or .pdf, in a folder that exists.
        timeout: Seconds until it gives up.

    Returns:
        `output`, as a `Path`.

    Raises:
        ExchangeError: The model cannot be read, or `output` has another ending.
        BrowserError: There is no browser, or it did not draw the graph.
        OutputError: The file cannot be written.
    """
    output = Path(output)
    kind = output.suffix.lower()
    if kind not in _KINDS:
        raise ExchangeError(
            "a picture must be SVG, PNG or PDF",
            where=output,
            expected="a name that ends in " + ", ".join(_KINDS),
        )
    check_output(output)
    proto = load(model)
    browser = find_browser()
    if browser is None:
        raise BrowserError("no browser to draw with", todo=HOW_TO_GET_ONE)
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        drawing = Path(folder) / f"drawing{kind}"
        _draw(_source(model, proto, Path(folder)), drawing, browser, timeout)
        return write_whole(output, drawing.read_bytes())


def _source(model: str | Path | bytes | onnx.ModelProto, proto: onnx.ModelProto, folder: Path) -> Path:
    if isinstance(model, (str, Path)):
        return Path(model).resolve()
    copy = folder / "model.onnx"
    copy.write_bytes(proto.SerializeToString())
    return copy


def _draw(model: Path, drawing: Path, browser: Path, timeout: float) -> None:
    report = drawing.with_name("report.json")
    program = Path(__file__).with_name("draw.py")
    # A process of its own: a notebook's event loop does not get in the way, Ctrl-C does not reach the browser
    # before us, and whatever happens there is one thing to end. -P keeps this folder out of its import path.
    command = [
        sys.executable,
        "-P",
        str(program),
        str(model),
        str(drawing),
        str(browser),
        str(2 * timeout),  # its own limit is only for when nobody ends it
        str(report),
    ]
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
    raise BrowserError("the browser did not draw the graph", where=browser, got=reason, todo=HOW_TO_GET_ONE)


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
        _end(process)


def _environment(folder: Path) -> dict[str, str]:
    # The browser's files go into our folder, which is removed in any case; but it has a socket there, and a socket's
    # path may have about a hundred characters.
    if len(str(folder)) > 50:
        return dict(os.environ)
    return os.environ | dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with all that it started, and wait until they are gone."""
    family: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(process.pid)
        family = [started, *started.children(recursive=True)]
    # Its input closed, the program ends, and Playwright's driver after it closes the browser and removes its
    # files.
    if process.stdin is not None:
        process.stdin.close()
    _wait(process, family, 5.0)
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
    _wait(process, family, 5.0)


def _wait(process: subprocess.Popen[bytes], family: list[psutil.Process], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None and not any(_lives(member) for member in family):
            return
        time.sleep(0.02)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
