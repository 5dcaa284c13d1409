"""The kernel's count of what this process sends, beside what was sent."""

import socket
import sys

from mlhood.jaxlab.cluster import sockets


def test_what_is_sent_is_counted_once():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        before = sockets.sent()
        here.sendall(bytes(50_000))
        received = 0
        while received < 50_000:
            received += len(there.recv(65_536))
        after = sockets.sent()
        there.close()
    if sys.platform == "linux":
        assert after - before == 50_000
    else:
        assert before is None


def test_without_the_kernels_count_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(sockets, "_OPEN", tmp_path / "none")
    assert sockets.sent() is None
