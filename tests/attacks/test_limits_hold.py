"""A hostile notebook that exceeds a limit is killed, the reason is reported, and the next task gets a new kernel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlhood.grading.sandbox.kernel import SandboxPool
from mlhood.grading.sandbox.limits import Limits
from tests.attacks.attacked import SMALL, Attacked
from tests.waiting import wait_until

KILLED = {
    "memory": ("hoard = [bytearray(os.urandom(1)) * (64 << 20) for _ in range(64)]", "used more than 600 MiB"),
    "shared memory": (
        "import mmap\nm = [mmap.mmap(-1, 64 << 20) for _ in range(64)]\nfor x in m:\n    x.write(b'x' * len(x))",
        "used more than 600 MiB",
    ),
    "memory of a process that hides": (
        "import ctypes\nctypes.CDLL(None).prctl(4, 0)\nhoard = [b'x' * (64 << 20) for _ in range(64)]",
        "used more than 600 MiB",
    ),
    "memory of children": (
        "import subprocess, sys, time\n"
        "c = [subprocess.Popen([sys.executable, '-c', 'import time; x = b\"x\" * (150 << 20); time.sleep(600)'])"
        " for _ in range(6)]\ntime.sleep(600)",
        "used more than 600 MiB",
    ),
    "tables of pages": (
        "import mmap\nm = mmap.mmap(-1, 1 << 39, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\n"
        "m.madvise(mmap.MADV_NOHUGEPAGE)\nfor n in range(0, 1 << 39, 2 << 20): m[n]\nimport time; time.sleep(600)",
        "used more than 600 MiB",
    ),
    "buffers of sockets": (
        "import socket, time\nheld = [socket.socketpair() for _ in range(735)]\ntime.sleep(600)",
        "used more than 600 MiB",
    ),
    "buffers of connections": (
        "import socket, time\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "held = [socket.create_connection(server.getsockname()) for _ in range(200)]\ntime.sleep(600)",
        "used more than 600 MiB",
    ),
    "buffers of sockets that are closed": (
        "import socket, time\na, b = socket.socketpair()\nfor _ in range(8):\n"
        "    closed = [end for _ in range(100) for end in socket.socketpair()]\n"
        "    socket.send_fds(a, [b'x'], [end.fileno() for end in closed])\ndel closed\ntime.sleep(600)",
        "used more than 600 MiB",
    ),
    "pipes": (
        "import time\nfor _ in range(4):\n    if os.fork() == 0:\n"
        "        held = [os.pipe() for _ in range(700)]\n        time.sleep(600)\ntime.sleep(600)",
        "opened more than 6000 files and sockets at once",
    ),
    "processes": ("while True: os.fork()", "started more than 40 processes"),
    "threads": (
        "import threading, time\nfor _ in range(999): threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "time.sleep(600)",
        "started more than 200 threads",
    ),
    "files": (
        "import time\nfor n in range(9999): open(f'{n}', 'w').close()\ntime.sleep(600)",
        "made more than 400 files",
    ),
    "an exit": ("os._exit(0)", "ended the Python process"),
    "a signal to itself": ("os.kill(os.getpid(), 9)", "ended the Python process"),
}


LIBC = "import ctypes, errno\nlibc = ctypes.CDLL(None, use_errno=True)\n"
# what takes memory of the kernel that no limit applies to, or a share that all processes of the user have in common
REFUSED = {
    "semaphores of System V": "libc.semget(0, 32000, 0o600)",
    "queues of messages": "libc.syscall(180 if ARM else 240, b'/q', 0o102, 0o600, None)",
    "asynchronous input": "libc.syscall(0 if ARM else 206, 128, ctypes.byref(ctypes.c_ulong(0)))",
    "pages in a pipe": "libc.vmsplice(os.pipe()[1], None, 0, 0)",
    "timers": "libc.syscall(107 if ARM else 222, 1, None, ctypes.byref(ctypes.c_void_p()))",
    "watches of files": "libc.inotify_init1(0)",
    "sockets to the host": "libc.socket(40, 1, 0)",
    "a call newer than the list": "libc.syscall(467, 0, None, 0)",
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_memory_that_no_process_is_charged_for_is_refused(shared, call):
    shared.run(LIBC + "ARM = os.uname().machine == 'aarch64'")
    assert shared.eval(f"{call}, errno.errorcode[ctypes.get_errno()]") == "-1 ENOSYS"


def test_locks_of_parts_of_a_file_and_larger_buffers_take_no_memory(shared):
    shared.run(
        "import fcntl\nfile = open('locked', 'w')\nfor n in range(99): fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * n)"
    )
    assert shared.eval("open('/proc/locks').read().count('POSIX')") == "0"
    shared.run("a, b = socket.socketpair()\nbefore = a.getsockopt(1, 7)\na.setsockopt(1, 7, 1 << 30)")
    assert shared.eval("a.getsockopt(1, 7) == before") == "True"


# The kernel counts the threads of an ordinary user, not of root: it can refuse one before the monitor kills.
THREADS_REFUSED = "RuntimeError: can't start new thread"


# of each of these, another one of its kind is tried always
WEEKLY = {
    *("memory of a process that hides", "buffers of connections", "buffers of sockets that are closed"),
    *("a signal to itself", "ignoring exceptions"),
}


def cases(table: dict) -> list:
    return [
        pytest.param(value, id=name, marks=[pytest.mark.exhaustive] * (name in WEEKLY)) for name, value in table.items()
    ]


@pytest.mark.parametrize("attack", cases(KILLED))
def test_exceeding_a_limit_is_killed_and_affects_only_its_cell(attacked, attack):
    source, reason = attack
    outcome = attacked.run("import os\n" + source)
    if reason == KILLED["threads"][1] and os.geteuid() != 0 and outcome.alive:
        assert outcome.error == THREADS_REFUSED
    else:
        assert reason in outcome.error
        assert not outcome.alive
    assert attacked.graded().earned == 1


LOOPS = {
    "plain": "while True: pass",
    "ignoring signals": (
        "import signal\nfor s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass"
    ),
    "ignoring exceptions": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "in C": "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')",
    "waiting": "import time\ntime.sleep(1000)",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "its pipes closed": "import os\nos.closerange(3, 99)",
}


@pytest.mark.parametrize("source", cases(LOOPS))
def test_a_cell_that_does_not_end_is_killed(attacked, source):
    outcome = attacked.run(source, 1)
    assert not outcome.alive
    assert "took more than 1 seconds" in outcome.error or "ended" in outcome.error
    assert attacked.graded().earned == 1


OUTPUTS = {
    "text": "while True: print('x' * 10000)",
    "many outputs": "while True: display('x')",
    "an output that is changed again and again": "h = display('x', display_id=True)\nwhile True: h.update('x' * 9999)",
    "one of twenty megabytes": "display({'text/plain': 'x' * (20 << 20)}, raw=True)",
}


@pytest.mark.parametrize("source", cases(OUTPUTS))
def test_a_cell_that_puts_out_too_much_is_stopped_and_the_kernel_is_not(shared, source):
    outcome = shared.run(source)
    assert outcome.error == "TooMuchOutput: the cell has put out more than 4 MiB"
    assert outcome.alive
    assert shared.graded().earned == 1


def test_the_time_of_all_cells_together_is_limited(tmp_path):
    limits = Limits(memory=SMALL.memory, seconds=2)
    with SandboxPool(limits, imports=(), prewarm=False) as pool, pool.kernel(tmp_path) as kernel:
        attacked = Attacked(kernel)
        attacked.run("import time\ntime.sleep(600)")
        outcome = attacked.run("x = 1")
        assert "has used its 2 seconds" in outcome.error
        assert attacked.graded().earned == 0


# -- nothing remains


def lines_of(path: str) -> set[str]:
    return set(Path(path).read_text().splitlines())


def marked(sign: bytes) -> list[str]:
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if sign in (process / "cmdline").read_bytes():
                pids.append(process.name)
    return pids


def test_nothing_remains_outside(pool, tmp_path):
    mounts = lines_of("/proc/self/mounts")
    sign = f"77{os.getpid()}"
    with pool.kernel(tmp_path / "kept") as kernel:
        attacked = Attacked(kernel)
        attacked.run(
            "import os, subprocess\n"
            f"subprocess.Popen(['setsid', 'sleep', '{sign}'])\n"  # a group and a session of its own
            "if os.fork() == 0:\n    os.setsid()\n"
            f"    os.fork() or os.execvp('sleep', ['sleep', '{sign}'])\n    os._exit(0)"
        )
        base = kernel.folder.parent
        assert wait_until(lambda: len(marked(sign.encode())) == 2)
    assert marked(sign.encode()) == []
    assert marked(base.name.encode()) == []
    assert not base.exists()
    assert lines_of("/proc/self/mounts") == mounts
    assert [link for link in descriptors() if base.name in link] == []


def descriptors() -> list[str]:
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(link.readlink()))
    return links


def test_a_sandbox_ends_with_the_grader(tmp_path):
    """However the grader dies, no process of the sandbox survives."""
    program = (
        "import sys, time\nfrom mlhood.grading.sandbox.limits import Limits\n"
        "from mlhood.grading.sandbox.sandbox import Sandbox\n"
        "s = Sandbox(Limits())\ns.start()\ns.connect()\nprint(s.folder.parent.name, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as grader:
        assert grader.stdout is not None
        name = grader.stdout.readline().strip().encode()
        assert marked(name)
        grader.kill()
    assert wait_until(lambda: not marked(name))
