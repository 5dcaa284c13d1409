"""The kernel's count of sent bytes against the bytes that are sent."""

import socket
import sys

from mlhood.jaxlab.cluster import bench_program


def test_sent_bytes_are_counted_once():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        before = bench_program.bytes_sent()
        client.sendall(bytes(50_000))
        received = 0
        while received < 50_000:
            received += len(connection.recv(65_536))
        after = bench_program.bytes_sent()
        connection.close()
    if sys.platform == "linux":
        assert after - before == 50_000
    else:
        assert before is None


def test_the_count_is_none_where_the_kernel_does_not_count(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_program, "_DESCRIPTORS", tmp_path / "none")
    assert bench_program.bytes_sent() is None
