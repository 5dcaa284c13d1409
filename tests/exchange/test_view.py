"""Serving Netron's page in a notebook and from the command line."""

import logging
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import netron
import pytest

from mlhood.errors import ExchangeError
from mlhood.exchange import show, view
from tests.waiting import PATIENCE

SERVE_SCRIPT = """
import sys
from mlhood.exchange import show
show(sys.argv[1], browse=False, echo=lambda text: print(text, flush=True))
"""


@pytest.fixture(autouse=True)
def stop_servers():
    yield
    netron.stop()


def fetch(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        return response.read()


def test_the_frame_shows_netrons_page(lenet_onnx, capfd):
    handlers = list(logging.root.handlers)
    frame = view(lenet_onnx, height=321)
    assert b"<title>Netron</title>" in fetch(frame.src)
    assert fetch(frame.src + "/data/model.onnx") == lenet_onnx.read_bytes()
    assert frame.height == 321
    assert capfd.readouterr() == ("", "")
    assert logging.root.handlers == handlers


def test_reusing_a_port_replaces_the_server(lenet_onnx, tf_lenet):
    first = view(lenet_onnx)
    second = view(tf_lenet, urlsplit(first.src).port)
    assert first.src == second.src
    assert fetch(second.src + "/data/model.onnx") == tf_lenet.SerializeToString()


def test_a_port_in_use_raises(lenet_onnx):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ExchangeError, match=f"port {port} is in use") as caught:
            view(lenet_onnx, port)
    assert "another port" in caught.value.parts["what to do"]


@pytest.mark.parametrize("port", [0, -1, 70_000])
def test_an_invalid_port_raises(lenet_onnx, port):
    with pytest.raises(ExchangeError, match="invalid port"):
        view(lenet_onnx, port)


def test_a_missing_file_raises(tmp_path):
    with pytest.raises(ExchangeError, match="no such file"):
        view(tmp_path / "no.onnx")


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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_sigint_stops_the_command(lenet_onnx):
    command = [sys.executable, "-c", SERVE_SCRIPT, str(lenet_onnx)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        (url,) = re.findall(r"http://\S+", process.stdout.readline())
        assert b"Netron" in fetch(url)
        process.send_signal(signal.SIGINT)
        remaining_output = process.communicate(timeout=PATIENCE)
    assert (process.returncode, *remaining_output) == (0, "", "")
