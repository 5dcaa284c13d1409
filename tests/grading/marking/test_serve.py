"""The command that serves the marking page: one at a time, and nothing that it called saved is lost."""

from __future__ import annotations

import os
import queue
import signal
import stat
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from mlhood import cli
from mlhood.errors import GradingError
from mlhood.grading.marking import server
from mlhood.grading.marking.items import item_key, items_of
from mlhood.grading.marking.server import REDIRECT, serve
from tests.grading.fake_class import ROOT
from tests.grading.marking.marked_class import marked_class, record_of
from tests.waiting import PATIENCE


@pytest.fixture
def start():
    """Start the command for a folder; return the process and the address that it prints."""
    running = []

    def begin(folder: Path) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "mlhood", "marks", str(folder), "--open", "--no-browser"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        running.append(process)
        line = process.stdout.readline() if process.stdout else ""
        assert line.startswith("marking page: http://127.0.0.1:"), line
        return process, line.removeprefix("marking page: ").strip()

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def save(address: str, key: str, points: str) -> int:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=PATIENCE)
    headers = {"Origin": f"http://{parts.netloc}", "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", f"{parts.path}save/{key}", f"points={points}", headers)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


def test_nothing_is_lost_when_it_ends(tmp_path, start):
    book = marked_class(tmp_path)
    task, question = (item_key(item) for item in items_of([record_of(book, "ada")]))
    killed, address = start(tmp_path)
    page = tmp_path / REDIRECT
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f'<a href="{address}">' in page.read_text()
    with pytest.raises(GradingError, match="another call serves"):
        serve(book)
    assert save(address, task, "7") == 200
    killed.kill()
    killed.wait()
    assert record_of(book, "ada").tasks[1].earned == 7
    ended, new_address = start(tmp_path)
    assert urlsplit(new_address).path != urlsplit(address).path
    assert save(new_address, question, "2.5") == 200
    ended.send_signal(signal.SIGINT)
    output, _ = ended.communicate(timeout=PATIENCE)
    assert (ended.returncode, output.splitlines()[-1]) == (
        0,
        f"ended; every point that the page called saved is in {book}",
    )
    assert urlsplit(new_address).path.strip("/") not in output
    assert record_of(book, "ada").score == 4 + 7 + 4 + 2.5
    assert not page.exists()


def test_the_browser_is_not_told_the_token(tmp_path, monkeypatch):
    """Every user of a machine can see the arguments of a process."""
    book = marked_class(tmp_path)
    opened: queue.Queue[str] = queue.Queue()
    printed = []

    def interrupt(text: str) -> None:
        printed.append(text)
        if text.startswith("It is for you"):
            raise KeyboardInterrupt

    monkeypatch.setattr(server.webbrowser, "open", opened.put)
    serve(book, interrupt)
    assert opened.get(timeout=PATIENCE) == (tmp_path / REDIRECT).resolve().as_uri()
    assert printed[0].startswith("marking page: http://127.0.0.1:")


@pytest.mark.parametrize("options", [["--open", "--write", "x"], ["--read", "x", "--write", "x"], []])
def test_one_way_of_marking_is_chosen(tmp_path, options):
    result = CliRunner().invoke(cli.app, ["marks", str(tmp_path), *options])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    with pytest.raises(GradingError, match="no gradebook"):
        serve(tmp_path / "absent.sqlite")
