"""The launcher: output, failures, timeouts and signals, and that no process survives."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import launch as module
from mlhood.jaxlab.cluster.launch import launch, process_environment
from mlhood.jaxlab.cluster.processes import COORDINATOR, PROCESS, PROCESSES
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")

START = f"""
import os, sys, time
rank = int(os.environ[{PROCESS!r}])

def barrier(folder, count):
    with open(folder + "." + str(rank), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, os.path.join(folder, str(rank)))
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)

"""
SLEEP = "time.sleep(600)"


def run(program, processes=2, lines=None, **options):
    lines = [] if lines is None else lines
    launch(["python", "-c", START + program], processes, say=lines.append, **{"grace": 0.3, **options})
    return lines


def is_gone(pid):
    """Tell whether a process has exited; zombies, which their adoptive parent has not reaped yet, count as exited."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith("Z") or not state.strip()


# -- output and environment


def test_every_line_is_prefixed_with_its_rank_and_in_order():
    lines = run("print('one', rank); print('two', file=sys.stderr); sys.stdout.write('last, without an end')", 3)
    for rank in range(3):
        from_rank = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert from_rank == [f"[{rank}] one {rank}", f"[{rank}] two", f"[{rank}] last, without an end"]
    assert len(lines) == 9


def test_invalid_utf8_is_replaced_and_an_endless_line_is_split():
    lines = run("os.write(1, bytes([255, 10])); os.write(1, b'x' * 200_000)", 1)
    assert lines[0] == "[0] �"
    assert sum(len(line) - 4 for line in lines[1:]) == 200_000
    assert len(lines) > 2


def test_the_environment_has_rank_devices_and_threads():
    names = [PROCESS, PROCESSES, COORDINATOR, "JAX_NUM_CPU_DEVICES", "OMP_NUM_THREADS", "PJRT_NPROC"]
    lines = run(f"print(*[os.environ[name] for name in {names!r}])", 2, devices=3, threads=1)
    values = sorted(line.split()[1:] for line in lines)
    address = values[0][2]
    assert values == [["0", "2", address, "3", "1", "1"], ["1", "2", address, "3", "1", "1"]]
    assert address.startswith("127.0.0.1:")


def test_the_port_is_reserved_until_it_is_used():
    """While the processes run, no other program is given the port, and process 0 can bind it, as gRPC does."""
    program = (
        "import socket; host, port = os.environ['JAX_COORDINATOR_ADDRESS'].split(':');"
        "server = socket.socket(); server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        "server.bind((host, int(port))); server.listen();"
        "socket.create_connection(server.getsockname()); print('bound');"
        "other = socket.socket();\ntry: other.bind(server.getsockname())\nexcept OSError: print('reserved')"
    )
    assert run(program, 1) == ["[0] bound", "[0] reserved"]


def test_the_coordinator_is_reached_without_a_proxy(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    assert "no_proxy" not in process_environment(0, 2, 1)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "intranet")
    environment = process_environment(0, 2, 1)
    assert environment["no_proxy"] == "intranet,127.0.0.1"
    assert environment["JAX_CHECK_PROXY_ENVS"] == "false"


# -- failures and timeouts


def test_a_failure_is_reported_with_its_last_lines_and_the_others_are_terminated(tmp_path):
    fail = "[print('went wrong'), sys.exit(7)]"
    program = f"print(os.getpid(), flush=True); barrier({str(tmp_path)!r}, 3); {fail} if rank == 1 else {SLEEP}"
    lines = []
    with pytest.raises(ClusterError, match="process 1 of 3 failed") as caught:
        run(program, 3, lines)
    assert "exit code 7" in str(caught.value)
    assert "[1] went wrong" in str(caught.value)
    pids = [int(line.split()[1]) for line in lines if line.split()[1].isdigit()]
    assert len(pids) == 3
    assert all(map(is_gone, pids))


def test_a_fatal_signal_is_named():
    with pytest.raises(ClusterError, match="process 0 of 2 failed") as caught:
        run(f"os.kill(os.getpid(), 9) if rank == 0 else {SLEEP}")
    assert "signal 9 (SIGKILL)" in str(caught.value)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path):
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"barrier({str(tmp_path)!r}, 2); sys.exit(1) if rank else {SLEEP}"
    )
    with pytest.raises(ClusterError, match="process 1 of 2 failed"):
        run(program)


def test_descendants_are_terminated_too(tmp_path):
    lines = []
    program = (
        "import subprocess; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"print(child.pid, flush=True); barrier({str(tmp_path)!r}, 2); {SLEEP} if rank else sys.exit(3)"
    )
    with pytest.raises(ClusterError, match="process 0 of 2 failed"):
        run(program, 2, lines)
    pids = [int(line.split()[1]) for line in lines]
    assert len(pids) == 2
    assert wait_until(lambda: all(map(is_gone, pids)))


def test_a_timeout_terminates_all(monkeypatch):
    lines, skipped = [], [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + skipped[0]))

    def say(line):
        lines.append(line)
        skipped[0] = 1000.0 if len(lines) == 2 else 0.0

    command = ["python", "-c", f"print('waiting', flush=True); import time; {SLEEP}"]
    with pytest.raises(ClusterError, match="timed out after 900 s") as caught:
        launch(command, 2, timeout=900, grace=0.3, say=say)
    assert "processes 0, 1 of 2" in str(caught.value)
    assert "[1] waiting" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (["python"], {"processes": 0}, "invalid size"),
        (["python"], {"devices": 0}, "invalid size"),
        (["no-such-script.py"], {}, "-- python no-such-script.py"),
        (["./there-is-no-such-program"], {}, "cannot be started"),
    ],
)
def test_invalid_arguments_are_rejected(command, options, message):
    with pytest.raises(ClusterError, match=message):
        launch(command, **{"processes": 2, **options})


# -- the command


def mlhood(*arguments):
    # undo `nohup pytest`: a launcher that inherits an ignored SIGHUP rightly keeps ignoring it
    program = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); from mlhood.cli import main; main()"
    command = [sys.executable, "-c", program, "cluster", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_to_the_launcher_terminates_all_processes(name, code):
    program = f"import os, time; print(os.getpid(), flush=True); {SLEEP}"
    with mlhood("-n", "2", "--", "python", "-c", program) as cluster:
        pids = [int(cluster.stdout.readline().split()[1]) for _ in range(2)]
        cluster.send_signal(getattr(signal, name))
        try:
            assert cluster.wait(timeout=PATIENCE) == code
        finally:
            cluster.kill()
    assert all(map(is_gone, pids))


def test_the_command_prints_the_error_and_exits_with_2(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], flush=True); sys.exit('no more')\n", encoding="utf-8")
    with mlhood("-n", "1", "--timeout", "600", "--", "python", str(script), "--steps", "3") as cluster:
        stdout, stderr = cluster.communicate(timeout=PATIENCE)
    assert cluster.returncode == 2
    assert "[0] ['--steps', '3']" in stdout
    assert "process 0 of 1 failed" in stderr
    assert "[0] no more" in stderr


def test_a_cluster_can_be_launched_from_another_thread():
    lines = []
    thread = threading.Thread(target=lambda: lines.extend(run("print('here')", 1)))
    thread.start()
    thread.join()
    assert lines == ["[0] here"]


def test_options_after_the_program_are_passed_to_it_with_and_without_dashes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    for separator in ([], ["--"]):
        with mlhood("-n", "1", *separator, "python", str(script), "--steps", "3") as cluster:
            stdout, _ = cluster.communicate(timeout=PATIENCE)
        assert cluster.returncode == 0
        assert stdout.strip() == "[0] ['--steps', '3']"
