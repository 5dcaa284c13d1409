"""Processes that are started together end together: what they say, how they fail, and that none is left behind."""

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
from mlhood.jaxlab.cluster.launch import launch, variables
from mlhood.jaxlab.cluster.processes import COORDINATOR, PROCESS, PROCESSES

pytestmark = pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="clusters are for Linux and macOS")

START = f"""
import os, sys, time
number = int(os.environ[{PROCESS!r}])

def meet(folder, count):
    with open(folder + "." + str(number), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, os.path.join(folder, str(number)))
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)

"""
SLEEPS = "time.sleep(600)"


def run(program, processes=2, said=None, **options):
    said = [] if said is None else said
    launch(["python", "-c", START + program], processes, say=said.append, **{"grace": 0.3, **options})
    return said


def gone(pid):
    """Say whether a process has ended; what is dead and not yet waited for, by whoever adopted it, counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith("Z") or not state.strip()


def until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


# -- what they say


def test_every_line_comes_with_its_process_and_in_its_order():
    said = run("print('one', number); print('two', file=sys.stderr); sys.stdout.write('last, without an end')", 3)
    for number in range(3):
        mine = [line for line in said if line.startswith(f"[{number}] ")]
        assert mine == [f"[{number}] one {number}", f"[{number}] two", f"[{number}] last, without an end"]
    assert len(said) == 9


def test_bytes_that_are_no_text_are_shown_and_a_line_without_end_is_cut():
    said = run("os.write(1, bytes([255, 10])); os.write(1, b'x' * 200_000)", 1)
    assert said[0] == "[0] �"
    assert sum(len(line) - 4 for line in said[1:]) == 200_000
    assert len(said) > 2


def test_each_is_told_its_place_its_devices_and_its_share_of_the_cores():
    names = [PROCESS, PROCESSES, COORDINATOR, "JAX_NUM_CPU_DEVICES", "OMP_NUM_THREADS", "PJRT_NPROC"]
    said = run(f"print(*[os.environ[name] for name in {names!r}])", 2, devices=3, threads=1)
    found = sorted(line.split()[1:] for line in said)
    address = found[0][2]
    assert found == [["0", "2", address, "3", "1", "1"], ["1", "2", address, "3", "1", "1"]]
    assert address.startswith("127.0.0.1:")


def test_python_is_the_one_that_has_the_course():
    assert run("print(sys.executable)", 1) == [f"[0] {sys.executable}"]


def test_the_port_is_kept_until_it_is_used():
    """While the processes run nobody else is given the port, and process 0 can bind it, as gRPC does."""
    program = (
        "import socket; place = os.environ['JAX_COORDINATOR_ADDRESS'].split(':');"
        "one = socket.socket(); one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        "one.bind((place[0], int(place[1]))); one.listen();"
        "socket.create_connection(one.getsockname()); print('bound');"
        "other = socket.socket();\ntry: other.bind(one.getsockname())\nexcept OSError: print('kept')"
    )
    assert run(program, 1) == ["[0] bound", "[0] kept"]


def test_a_proxy_is_not_asked_for_the_coordinator(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    assert "no_proxy" not in variables(0, 2, 1)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "intranet")
    told = variables(0, 2, 1)
    assert told["no_proxy"] == "intranet,127.0.0.1"
    assert told["JAX_CHECK_PROXY_ENVS"] == "false"


# -- how they fail


def test_one_that_fails_is_named_with_its_last_lines_and_the_others_are_ended(tmp_path):
    fails = "[print('went wrong'), sys.exit(7)]"
    program = f"print(os.getpid(), flush=True); meet({str(tmp_path)!r}, 3); {fails} if number == 1 else {SLEEPS}"
    said = []
    with pytest.raises(ClusterError, match="process 1 of 3 failed") as failed:
        run(program, 3, said)
    assert "exit code 7" in str(failed.value)
    assert "[1] went wrong" in str(failed.value)
    pids = [int(line.split()[1]) for line in said if line.split()[1].isdigit()]
    assert len(pids) == 3
    assert all(map(gone, pids))


def test_a_signal_that_ended_one_is_named():
    with pytest.raises(ClusterError, match="process 0 of 2 failed") as failed:
        run(f"os.kill(os.getpid(), 9) if number == 0 else {SLEEPS}")
    assert "signal 9 (SIGKILL)" in str(failed.value)


def test_one_that_does_not_listen_is_ended_all_the_same(tmp_path):
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"meet({str(tmp_path)!r}, 2); sys.exit(1) if number else {SLEEPS}"
    )
    with pytest.raises(ClusterError, match="process 1 of 2 failed"):
        run(program)


def test_what_a_process_has_started_ends_with_it(tmp_path):
    said = []
    program = (
        "import subprocess; inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"print(inner.pid, flush=True); meet({str(tmp_path)!r}, 2); {SLEEPS} if number else sys.exit(3)"
    )
    with pytest.raises(ClusterError, match="process 0 of 2 failed"):
        run(program, 2, said)
    pids = [int(line.split()[1]) for line in said]
    assert len(pids) == 2
    assert until(lambda: all(map(gone, pids)))


def test_time_is_limited(monkeypatch):
    said, passed = [], [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))

    def say(line):
        said.append(line)
        passed[0] = 1000.0 if len(said) == 2 else 0.0

    with pytest.raises(ClusterError, match="900 s were over") as late:
        launch(
            ["python", "-c", f"print('waiting', flush=True); import time; {SLEEPS}"], 2, timeout=900, grace=0.3, say=say
        )
    assert "processes 0, 1 of 2" in str(late.value)
    assert "[1] waiting" in str(late.value)


def test_silence_is_said_when_time_is_over():
    with pytest.raises(ClusterError, match="not a line of output"):
        launch(["python", "-c", f"import time; {SLEEPS}"], 2, timeout=0.2, grace=0.3)


def test_the_first_that_failed_is_named_though_another_is_heard_of_before(tmp_path):
    """What process 0 has started holds its output open for a while, so that its end is told late."""
    program = f"""
meet({str(tmp_path)!r}, 2)
if number == 0:
    import subprocess
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    sys.exit(5)
zero = int(open({str(tmp_path / "0")!r}).read())
try:
    while True:
        os.kill(zero, 0)
        time.sleep(0.01)
except ProcessLookupError:
    sys.exit(6)
"""
    with pytest.raises(ClusterError, match="process 0 of 2 failed"):
        run(program)


@pytest.mark.parametrize(
    ("command", "options", "what"),
    [
        ([], {}, "nothing to run"),
        (["python"], {"processes": 0}, "no cluster"),
        (["python"], {"processes": 1000}, "no cluster"),
        (["python"], {"devices": 0}, "no cluster"),
        (["python"], {"timeout": 0}, "no time limit"),
        (["python"], {"timeout": float("nan")}, "no time limit"),
        (["python"], {"timeout": float("inf")}, "no time limit"),
        (["no-such-script.py"], {}, "-- python no-such-script.py"),
        (["./there-is-no-such-program"], {}, "cannot be started"),
    ],
)
def test_what_makes_no_sense_is_refused(command, options, what):
    with pytest.raises(ClusterError, match=what):
        launch(command, **{"processes": 2, **options})


# -- from outside


def mlhood(*arguments):
    command = [sys.executable, "-c", "from mlhood.cli import main; main()", "cluster", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_to_the_launcher_leaves_no_process_behind(name, code):
    with mlhood(
        "-n", "2", "--", "python", "-c", f"import os, time; print(os.getpid(), flush=True); {SLEEPS}"
    ) as cluster:
        pids = [int(cluster.stdout.readline().split()[1]) for _ in range(2)]
        cluster.send_signal(getattr(signal, name))
        assert cluster.wait(timeout=60) == code
    assert all(map(gone, pids))


def test_the_command_shows_the_error_and_ends_with_2(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:], flush=True); sys.exit('no more')\n", encoding="utf-8")
    with mlhood("-n", "1", "--timeout", "60", "--", "python", str(script), "--steps", "3") as cluster:
        out, error = cluster.communicate(timeout=60)
    assert cluster.returncode == 2
    assert "[0] ['--steps', '3']" in out
    assert "process 0 of 1 failed" in error
    assert "[0] no more" in error


def test_a_cluster_can_be_started_beside_the_main_thread():
    found = []
    one = threading.Thread(target=lambda: found.extend(run("print('here')", 1)))
    one.start()
    one.join()
    assert found == ["[0] here"]


def test_options_after_the_program_are_the_programs_without_dashes_between(tmp_path):
    script = tmp_path / "told.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    for between in ([], ["--"]):
        main = [sys.executable, "-c", "from mlhood.cli import main; main()", "cluster", "-n", "1"]
        command = [*main, *between, "python", str(script), "--steps", "3"]
        ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert ended.stdout.strip() == "[0] ['--steps', '3']"
