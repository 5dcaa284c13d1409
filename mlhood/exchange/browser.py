"""Finding the browser that draws: the system's Chromium, Chrome or Edge, or Playwright's own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from mlhood.errors import BrowserError

BROWSER_VARIABLE = "MLHOOD_BROWSER"
HOW_TO_GET_ONE = (
    "install Chromium, Chrome or Edge, or run `python -m playwright install chromium`; "
    f"if it lies in an unusual place, set {BROWSER_VARIABLE} to its program"
)

_COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "microsoft-edge-stable",
    "msedge",
)
_MAC = ("Google Chrome", "Chromium", "Microsoft Edge")
_WINDOWS = (
    "Google/Chrome/Application/chrome.exe",
    "Microsoft/Edge/Application/msedge.exe",
    "Chromium/Application/chrome.exe",
)
# Where Playwright puts its own, relative to one revision's folder.
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


def find_browser() -> Path | None:
    """Return the browser that `render` uses, or None where there is none.

    The first of: the environment variable `MLHOOD_BROWSER`, Chromium, Chrome and Edge on the path and in
        their
    usual places, and Playwright's own Chromium.

    Raises:
        BrowserError: `MLHOOD_BROWSER` is set, but to no program.
    """
    wanted = os.environ.get(BROWSER_VARIABLE)
    if wanted:
        return _wanted(wanted)
    return next((place for place in _places() if _is_program(place)), None)


def _wanted(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise BrowserError(
            f"{BROWSER_VARIABLE} does not name a program",
            expected="the program of Chromium, Chrome or Edge",
            got=name,
            todo=f"correct {BROWSER_VARIABLE}, or unset it to have the browser looked for",
        )
    return Path(found)


def _places() -> Iterator[Path]:
    for command in _COMMANDS:
        found = shutil.which(command)
        if found:
            yield Path(found)
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), Path.home() / "Applications"):
            yield from (folder / f"{name}.app" / "Contents" / "MacOS" / name for name in _MAC)
    if sys.platform == "win32":
        for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            folder = os.environ.get(variable)
            if folder:
                yield from (Path(folder) / name for name in _WINDOWS)
    for folder in _playwright_folders():
        for pattern in _PLAYWRIGHT:
            yield from sorted(folder.glob(f"chromium*/{pattern}"), reverse=True)


def _playwright_folders() -> list[Path]:
    chosen = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if chosen and chosen != "0":
        return [Path(chosen)]
    if sys.platform == "darwin":
        return [Path.home() / "Library" / "Caches" / "ms-playwright"]
    if sys.platform == "win32":
        return [Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "ms-playwright"]
    return [Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "ms-playwright"]


def _is_program(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return False
