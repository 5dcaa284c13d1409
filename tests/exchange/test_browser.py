"""Finding a browser, on machines that have one in various places."""

import sys
from pathlib import Path

import pytest

from mlhood.errors import BrowserError
from mlhood.exchange import find_browser


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without any browser."""
    monkeypatch.delenv("MLHOOD_BROWSER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "playwright"))
    for variable in ("PROGRAMFILES", "PROGRAMFILES(X86)", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    if sys.platform == "darwin":
        monkeypatch.setattr("mlhood.exchange.browser._MAC", ())
    return tmp_path


def test_none(bare):
    assert find_browser() is None


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program on Windows")
@pytest.mark.parametrize("name", ["chromium", "google-chrome", "microsoft-edge"])
def test_on_the_path(bare, name):
    path = program(bare / "bin" / name)
    assert find_browser() == path


def test_playwrights_own(bare):
    path = program(bare / "playwright" / "chromium-1200" / "chrome-linux" / "chrome")
    assert find_browser() == path


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program on Windows")
def test_the_environment_wins(bare, monkeypatch):
    program(bare / "bin" / "chromium")
    path = program(bare / "elsewhere" / "mine")
    monkeypatch.setenv("MLHOOD_BROWSER", str(path))
    assert find_browser() == path


def test_in_the_usual_places_of_windows(bare, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    path = program(bare / "PROGRAMFILES" / "Google/Chrome/Application/chrome.exe")
    assert find_browser() == path


def test_in_the_usual_places_of_macos(bare, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("mlhood.exchange.browser._MAC", ("Google Chrome",))
    path = program(bare / "home" / "Applications" / "Google Chrome.app" / "Contents" / "MacOS" / "Google Chrome")
    assert find_browser() in (path, Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"))


def test_a_wrong_setting_is_told(bare, monkeypatch):
    monkeypatch.setenv("MLHOOD_BROWSER", "/no/such/browser")
    with pytest.raises(BrowserError, match="MLHOOD_BROWSER") as caught:
        find_browser()
    assert caught.value.parts["got"] == "/no/such/browser"
