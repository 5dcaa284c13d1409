"""What all tests share: two worker processes, what a run of everything leaves out, seeds, Ctrl-C, and golden files."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# `numba.cuda` is the simulator, whichever test imports it first.
os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
# The same examples in every run, however slow the machine is. A test that suppresses health checks names too_slow, too.
settings.load_profile("ci")

ROOT = Path(__file__).parent
WORKERS = 2
# The longest run first: at the end, both workers have short ones left. Notebooks run beside each other, as what they
# time is one thread: beside a grader with several processes, rounds would be interrupted and repeated.
LONGEST = (
    "P",
    "tests/grading/projects/test_examples.py",
    "tests/grading/notebooks/test_nbgrader.py",
    "tests/test_how_to.py",
)
# Files whose tests may run in several workers: tests of one project share expensive fixtures, or none do.
PARTS = {
    "tests/grading/projects/test_examples.py": re.compile(r"\[(P\d)"),
    "tests/test_how_to.py": re.compile(r"(.+)"),
}


# P2 reads the network that P1 writes into the same folder.
TOGETHER = {"P2.ipynb": "P1.ipynb"}


def scope(nodeid: str) -> str:
    """Return the group that one worker runs in order: the tests of a file or of a notebook, or a part of them."""
    file, _, test = nodeid.partition("::")
    file = TOGETHER.get(file, file)
    part = PARTS[file].search(test) if file in PARTS else None
    return f"{file}::{part[1]}" if part else file


def start_order(nodeid: str) -> tuple[int, str]:
    """Return a sort key: the longest scopes first, each scope's tests together."""
    rank = next((rank for rank, prefix in enumerate(LONGEST) if nodeid.startswith(prefix)), len(LONGEST))
    return rank, scope(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Run the whole suite in two workers, without its exhaustive tests unless asked.

    A selection of tests runs in this process, for debuggers, and leaves nothing out.
    """
    selected = config.args_source is not config.ArgsSource.TESTPATHS or config.option.keyword or config.option.markexpr
    config.option.exhaustive = config.option.exhaustive or bool(selected)  # a worker, too: it parses the same arguments
    serial = config.option.usepdb or hasattr(config, "workerinput") or (os.cpu_count() or 1) < WORKERS
    if selected or serial or not config.pluginmanager.hasplugin("xdist"):
        return
    if config.option.numprocesses is None:
        config.option.numprocesses = WORKERS
        config.option.loadscopereorder = False  # start_order decides


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Schedule by scope, however many workers there are."""
    from xdist.scheduler import LoadScopeScheduling

    class Scopes(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return scope(nodeid)

    return Scopes(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without collecting garbage: what they consist of stays, so that no later search visits it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config, items):
    """Deselect the exhaustive tests unless asked; in a worker, sort the others so that the longest start first."""
    if not config.option.exhaustive:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("exhaustive")])
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: start_order(item.nodeid))


def seed_torch():
    """Seed torch's global generator, so that no draw depends on which tests ran before in this process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup():
    seed_torch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call():
    seed_torch()


def pytest_runtest_teardown():
    """Close the figures of a test."""
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


def pytest_configure():
    """Restore SIGINT for programs that tests start: a shell ignores it for what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def place(nodeid: str) -> str:
    """Return where a test belongs for a sum of times: `tests/compiler`, `tests/grading/bench` or `P3.ipynb`."""
    *folders, file = nodeid.partition("::")[0].split("/")
    return "/".join(folders[: 3 if folders[1:2] == ["grading"] else 2]) or file


def pytest_terminal_summary(terminalreporter):
    """With --durations, also print the time of each folder and notebook, all workers together."""
    if not terminalreporter.config.option.durations:
        return
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[place(report.nodeid)] = seconds.get(place(report.nodeid), 0.0) + report.duration
    terminalreporter.section("time by folder and notebook")
    for name, total in sorted(seconds.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{total:7.0f} s  {name}")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")
    parser.addoption("--exhaustive", action="store_true", help="run the whole suite with its exhaustive tests")


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
