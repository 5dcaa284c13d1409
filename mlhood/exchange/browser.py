"""Find the browser to render with: the system's Chromium, Chrome or Edge, or Playwright's own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from mlhood.errors import BrowserError

BROWSER_VARIABLE = "MLHOOD_BROWSER"
INSTALL_HINT = (
    "install Chromium, Chrome or Edge, or run `python -m playwright install chromium`; "
    f"if it is installed in an unusual location, set {BROWSER_VARIABLE} to its executable"
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
    for command in _COMMANDS:
        executable = shutil.which(command)
        if executable:
            yield Path(executable)
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), Path.home() / "Applications"):
            yield from (folder / f"{name}.app" / "Contents" / "MacOS" / name for name in _MAC)
    if sys.platform == "win32":
        for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
            folder = os.environ.get(variable)
            if folder:
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
