"""What all tests share: the switch that writes golden files anew, and ears for Ctrl-C."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def pytest_configure():
    """Let programs that tests start hear Ctrl-C, also where pytest runs in the background and is deaf to it itself."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def golden(request) -> Callable[[str, str], None]:
    """Return a function that compares a text with the golden file at a path below tests/."""

    def compare(path: str, text: str) -> None:
        file = ROOT / path
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        assert file.exists(), f"{path} is missing: run pytest --update-golden, then read what it wrote"
        assert text == file.read_text(encoding="utf-8"), f"{path} differs; if that is meant: pytest --update-golden"

    return compare
