"""`mlhood view`: its output and exit codes."""

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from mlhood.exchange import find_browser
from tests.waiting import PATIENCE

MLHOOD = [sys.executable, "-c", "from mlhood.cli import main; main()"]


def mlhood(*arguments):
    command = [*MLHOOD, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


def test_a_bad_file_has_a_clear_error_and_no_traceback(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"\x89PNG....")
    result = mlhood("view", tmp_path / "bad.onnx", "--no-browser")
    assert result.returncode != 0
    assert "not an ONNX file" in result.stderr
    assert "a PNG image" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_port_in_use_has_a_clear_error(lenet_onnx):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = mlhood("view", lenet_onnx, "--no-browser", "--port", port)
    assert result.returncode != 0
    assert f"port {port} is in use" in result.stderr


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
