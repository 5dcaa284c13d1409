"""The environment of Python: a browser, a sandbox, free disk space, a local port."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from mlhood.doctor.finding import Finding
from mlhood.grading.sandbox import bubblewrap
from mlhood.measure.machine import binary_size

FREE_BYTES = 2**30  # ample for the executed notebooks, models and reports of a complete run
_BROWSER_TODO = (
    "install Chromium, Chrome or Edge (Debian and Ubuntu: apt-get install chromium; "
    "macOS: brew install --cask chromium; Windows has Edge)"
)


def browser(path: Path | None) -> Finding:
    """Check that the browser at `path` starts headless and finds a font."""
    if path is None:
        return Finding("browser", False, "no Chromium, Chrome or Edge was found", _BROWSER_TODO)
    from playwright.sync_api import Error

    try:
        version, width = _launch(path)
    except (Error, OSError) as error:
        message = f"{path} does not start headless ({_first_line(str(error))})"
        return Finding("browser", False, message, _BROWSER_TODO)
    if not width:
        todo = "install a font (Debian and Ubuntu: apt-get install fonts-dejavu-core)"
        return Finding("browser", False, f"{path} starts, but finds no font", todo)
    return Finding("browser", True, f"{path} starts headless (version {version})")


def sandbox() -> Finding:
    """Check that the sandbox in which `mlhood grade` runs submissions works on this machine."""
    if problem := bubblewrap.problem():
        return Finding("sandbox", False, problem, bubblewrap.advice())
    return Finding("sandbox", True, "bubblewrap isolates a process from files and network")


def disk(folder: Path, needed: int = FREE_BYTES) -> Finding:
    """Check that `folder` is writable and has at least `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        todo = "free some space, or work in a folder on another disk"
        return Finding("disk", False, f"{binary_size(free)} free, {binary_size(needed)} needed", todo, required=True)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        todo = "work in a writable folder"
        return Finding("disk", False, f"this folder is not writable ({os.strerror(error.errno or 0)})", todo, True)
    return Finding("disk", True, f"{binary_size(free)} free, and this folder is writable", required=True)


def local_port() -> Finding:
    """Check that a local port opens and accepts connections; notebooks and Netron communicate through one."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        todo = "allow connections to 127.0.0.1 in the firewall or the container"
        return Finding("local port", False, f"127.0.0.1 is not reachable ({error})", todo, required=True)
    return Finding("local port", True, "a port on 127.0.0.1 opens and accepts connections", required=True)


def _launch(path: Path) -> tuple[str, float]:
    """Return the browser's version and the width in pixels of a rendered word."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, timeout=20_000)
        page = chromium.new_page()
        width = page.evaluate("document.createElement('canvas').getContext('2d').measureText('Conv').width")
        version = chromium.version
        chromium.close()
    return version, float(width)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
