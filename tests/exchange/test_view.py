"""Serving Netron's page in a notebook, and by `mlhood view`: its messages and exit codes."""

import logging
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import netron
import pytest

from mlhood.errors import ExchangeError
from mlhood.exchange import find_browser, show, view
from tests.waiting import PATIENCE

MLHOOD = [sys.executable, "-c", "from mlhood.cli import main; main()"]


def mlhood(*arguments):
    command = [*MLHOOD, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        return response.read()


@pytest.fixture(autouse=True)
def stop_servers():
    yield
    netron.stop()


def test_the_frame_shows_netrons_page(lenet_onnx, capfd):
    handlers = list(logging.root.handlers)
    frame = view(lenet_onnx, height=321)
    assert b"<title>Netron</title>" in fetch(frame.src)
    assert fetch(frame.src + "/data/model.onnx") == lenet_onnx.read_bytes()
    assert frame.height == 321
    assert capfd.readouterr() == ("", "")
    assert logging.root.handlers == handlers


def test_ctrl_c_ends_the_server(lenet_onnx, monkeypatch):
    messages, opened = [], []

    def interrupt(text):
        messages.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    show(lenet_onnx, echo=interrupt)
    (url,) = opened
    assert url in messages[0]
    with pytest.raises(urllib.error.URLError):
        fetch(url)


def test_a_port_in_use_raises(lenet_onnx):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ExchangeError, match="the port cannot be used") as caught:
            show(lenet_onnx, port, browse=False)
    assert "another port" in caught.value.parts["what to do"]


def test_a_bad_file_has_a_clear_error_and_no_traceback(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x89PNG....")
    result = mlhood("view", tmp_path / "bad.onnx", "--no-browser")
    assert result.returncode != 0
    assert "not an ONNX file" in result.stderr
    assert "a PNG image" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


@pytest.mark.browser
@pytest.mark.skipif(find_browser() is None, reason="no Chromium, Chrome or Edge here: set MLHOOD_BROWSER to one")
def test_output_draws(lenet_onnx, tmp_path):
    result = mlhood("view", lenet_onnx, "--output", tmp_path / "lenet.svg")
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, str(tmp_path / "lenet.svg"), "")
    assert b"conv1" in (tmp_path / "lenet.svg").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_ctrl_c_exits_cleanly(lenet_onnx):
    command = [*MLHOOD, "view", str(lenet_onnx), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        message = process.stdout.readline()
        url = next(word.rstrip(";") for word in message.split() if word.startswith("http"))
        with urllib.request.urlopen(url, timeout=PATIENCE) as page:
            assert b"Netron" in page.read()
        process.send_signal(signal.SIGINT)
        remaining_output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, *remaining_output) == (0, "", "")
