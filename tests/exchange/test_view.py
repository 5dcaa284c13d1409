"""Serving Netron's page, in a notebook and from the command line."""

import logging
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import netron
import pytest

from mlhood.errors import ExchangeError
from mlhood.exchange import show, view

WAITING = """
import sys
from mlhood.exchange import show
show(sys.argv[1], browse=False, say=lambda text: print(text, flush=True))
"""


@pytest.fixture(autouse=True)
def no_server_left():
    yield
    netron.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def test_a_frame_with_the_real_page(lenet_onnx, capfd):
    handlers = list(logging.root.handlers)
    frame = view(lenet_onnx, height=321)
    assert b"<title>Netron</title>" in fetch(frame.src)
    assert fetch(frame.src + "/data/model.onnx") == lenet_onnx.read_bytes()
    assert frame.height == 321
    assert capfd.readouterr() == ("", "")
    assert logging.root.handlers == handlers


def test_the_same_port_again_replaces(lenet_onnx, tf_lenet):
    port = free_port()
    first, second = view(lenet_onnx, port), view(tf_lenet, port)
    assert first.src == second.src == f"http://127.0.0.1:{port}"
    assert fetch(second.src + "/data/model.onnx") == tf_lenet.SerializeToString()


def test_a_port_in_use_is_told(lenet_onnx):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ExchangeError, match=f"port {port} is in use") as caught:
            view(lenet_onnx, port)
    assert "another port" in caught.value.parts["what to do"]


@pytest.mark.parametrize("port", [0, -1, 70_000])
def test_what_is_no_port_is_told(lenet_onnx, port):
    with pytest.raises(ExchangeError, match="not a port"):
        view(lenet_onnx, port)


def test_a_bad_file_is_told(tmp_path):
    with pytest.raises(ExchangeError, match="no such file"):
        view(tmp_path / "no.onnx")


def test_ctrl_c_ends_the_server(lenet_onnx, monkeypatch):
    said, opened = [], []

    def interrupt(text):
        said.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    show(lenet_onnx, say=interrupt)
    (url,) = opened
    assert url in said[0]
    with pytest.raises(urllib.error.URLError):
        fetch(url)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
def test_ctrl_c_from_outside(lenet_onnx):
    command = [sys.executable, "-c", WAITING, str(lenet_onnx)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        (url,) = re.findall(r"http://\S+", said)
        assert b"Netron" in fetch(url)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=20)
    assert (process.returncode, *rest) == (0, "", "")
