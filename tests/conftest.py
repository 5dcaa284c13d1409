"""What all tests share: two processes that run them, ears for Ctrl-C, and the switch that writes golden files anew."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
WORKERS = 2
# These last longest. Begun first, they leave no process alone with one of them at the end.
LONGEST = ("tests/grading/projects/test_gallery.py", "tests/grading/notebooks/test_nbgrader.py", "P")
# Their tests share nothing that takes long to make: those of a project do, or each stands on its own.
PARTS = {
    "tests/grading/projects/test_gallery.py": re.compile(r"\[(P\d)"),
    "tests/grading/notebooks/test_nbgrader.py": re.compile(r"(.+)"),
}


def unit(nodeid: str) -> str:
    """What one process runs in one go, in order: the tests of a file or of a notebook, or a part of them."""
    file, _, test = nodeid.partition("::")
    part = PARTS[file].search(test) if file in PARTS else None
    return f"{file}::{part[1]}" if part else file


def turn(nodeid: str) -> tuple[int, str]:
    """When a unit is begun: a key to sort by."""
    place = next((place for place, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))
    return place, unit(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run all tests in two processes; what somebody has chosen of them in this one, where a debugger finds it."""
    chosen = config.args_source is not config.ArgsSource.TESTPATHS or config.option.keyword or config.option.markexpr
    alone = config.option.usepdb or hasattr(config, "workerinput") or (os.cpu_count() or 1) < WORKERS
    if chosen or alone or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = WORKERS
        config.option.loadscopereorder = False  # `turn` says what comes first


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out units, however many processes there are."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return unit(nodeid)

    return Units(config, log)


def pytest_collection_modifyitems(config, items):
    """Put the longest first, where there are others to take the rest meanwhile."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn(item.nodeid))


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
