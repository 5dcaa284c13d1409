"""Finding a browser in the various locations where one is installed."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from mlhood.errors import BrowserError
from mlhood.exchange import find_browser

render = import_module("mlhood.exchange.render")  # `mlhood.exchange.render` is the function


def make_executable(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_browser(tmp_path, monkeypatch):
    """A machine without any browser."""
    monkeypatch.delenv("MLHOOD_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    if sys.platform == "darwin":
        monkeypatch.setattr(render, "_MAC", ())
    return tmp_path


def test_none(no_browser):
    assert find_browser() is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not execute scripts")
@pytest.mark.parametrize("name", ["chromium", "google-chrome", "microsoft-edge"])
def test_on_the_path(no_browser, name):
    path = make_executable(no_browser / "bin" / name)
    assert find_browser() == path


def test_playwrights_own_browser(no_browser):
    path = make_executable(no_browser / "playwright" / "chromium-1200" / "chrome-linux" / "chrome")
    assert find_browser() == path


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not execute scripts")
def test_the_environment_variable_takes_precedence(no_browser, monkeypatch):
    make_executable(no_browser / "bin" / "chromium")
    path = make_executable(no_browser / "elsewhere" / "mine")
    monkeypatch.setenv("MLHOOD_BROWSER", str(path))
    assert find_browser() == path


def test_usual_locations_on_windows(no_browser, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    path = make_executable(no_browser / "PROGRAMFILES" / "Google/Chrome/Application/chrome.exe")
    assert find_browser() == path


def test_usual_locations_on_macos(no_browser, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(render, "_MAC", ("Google Chrome",))
    bundle = "Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    path = make_executable(no_browser / "home" / bundle)
    assert find_browser() in (path, Path("/", bundle))


def test_an_invalid_environment_variable_raises(no_browser, monkeypatch):
    monkeypatch.setenv("MLHOOD_BROWSER", "/no/such/browser")
    with pytest.raises(BrowserError, match="MLHOOD_BROWSER") as caught:
        find_browser()
    assert caught.value.parts["got"] == "/no/such/browser"
