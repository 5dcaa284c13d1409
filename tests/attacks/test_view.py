"""What a hostile notebook sees and reaches from its sandbox: itself."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

import mlhood
from mlhood.grading.sandbox.kernel import SandboxedKernel
from tests.attacks.attacked import SECRET, Attacked

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("instructor") / "seed.txt"
    path.write_text(SECRET)
    return path


def test_it_is_nobody_in_a_house_of_its_own(lasting):
    assert lasting.says("os.getuid(), os.getgid(), os.uname().nodename") == "65534 65534 sandbox"
    assert lasting.says("Path.home(), os.getcwd() == str(Path.cwd())") == "/student True"
    assert lasting.says("__import__('getpass').getuser()") == "student"


def test_the_seed_file_is_not_there(lasting, secret):
    assert lasting.says(f"open({str(secret)!r}).read()") == "FileNotFoundError"
    assert lasting.says(f"os.listdir({str(secret.parents[1])!r})") == "FileNotFoundError"


@pytest.mark.parametrize("name", ["P1.ipynb", "tests", "README.md", ".git", "pyproject.toml"])
def test_of_the_course_only_the_package_is_there(lasting, name):
    root = Path(mlhood.__file__).parents[1]
    assert lasting.says(f"os.path.exists({str(ROOT / name)!r}), os.path.exists({str(root / name)!r})") == "False False"
    environment = Path(sys.prefix)  # the README's lies in the course's folder
    seen = {"mlhood"} | ({environment.name} if environment.parent == root else set())
    assert lasting.says(f"set(os.listdir({str(root)!r})) == {seen!r}") == "True"


def test_the_home_of_the_grader_is_not_there(lasting):
    home = Path.home().resolve()
    shown = set(lasting.says(f"'/'.join(os.listdir({str(home)!r}))").split("/"))
    # the interpreter, its libraries and the package may be installed there; of all else nothing is mounted
    mounted = [Path(mlhood.__file__).parent, Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)]
    below = {path.resolve().relative_to(home).parts[0] for path in mounted if path.resolve().is_relative_to(home)}
    assert shown <= {"FileNotFoundError"} | below


def test_another_submission_is_not_there(lasting, sandboxes):
    other = sandboxes.take()
    try:
        other.start() if not other.started else None
        assert lasting.says(f"os.path.exists({str(other.folder.parent)!r})") == "False"
    finally:
        other.close()


def test_the_environment_of_the_grader_does_not_cross(lasting):
    assert os.environ["GRADEBOOK_TOKEN"] == SECRET
    assert SECRET not in lasting.says("dict(os.environ)")
    assert SECRET not in lasting.says("Path('/proc/1/environ').read_bytes() + Path('/proc/self/environ').read_bytes()")


def test_the_processes_of_the_host_are_not_there(lasting):
    assert int(lasting.says("len([pid for pid in os.listdir('/proc') if pid.isdigit()])")) <= 3
    assert lasting.says(f"os.kill({os.getpid()}, 0)") == "ProcessLookupError"
    assert lasting.says("os.path.samefile('/proc/1/root', '/')") == "True"  # the first one's root is the same


def test_no_socket_of_the_host_is_reached(lasting):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = listening.getsockname()
        assert lasting.says(f"socket.create_connection({address}, 2)") == "ConnectionRefusedError"


def test_no_abstract_socket_of_the_host_is_reached(lasting):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0mlhood-test-{os.getpid()}")
        listening.listen()
        reach = f"socket.socket(socket.AF_UNIX).connect('\\0mlhood-test-{os.getpid()}')"
        assert lasting.says(reach) == "ConnectionRefusedError"


def test_there_is_no_network(lasting):
    assert lasting.says("[name for _, name in socket.if_nameindex()]") == "['lo']"
    assert lasting.says("socket.create_connection(('192.0.2.1', 80), 2)") == "OSError"
    assert lasting.says("socket.getaddrinfo('example.org', 80)") == "gaierror"


def test_its_own_loopback_works(lasting):
    lasting.run(
        'server = \'import socket, sys; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], '
        'flush=True); c, _ = s.accept(); c.sendall(b"heard")\'\n'
        "child = subprocess.Popen([sys.executable, '-c', server], stdout=subprocess.PIPE, text=True)\n"
        "port = int(child.stdout.readline())"
    )
    assert lasting.says("socket.create_connection(('127.0.0.1', port), 5).recv(9)") == "b'heard'"


@pytest.mark.parametrize(
    "place",
    [
        *("/x", "/usr/x", "/etc/passwd", "/dev/x", "/sys/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"),
        *(mlhood.__file__, os.__file__),
    ],
)
def test_what_is_not_its_own_cannot_be_written(lasting, place):
    assert lasting.says(f"open({place!r}, 'r+b' if os.path.exists({place!r}) else 'wb')") in {
        *("OSError", "PermissionError", "FileNotFoundError")
    }


def test_it_cannot_make_a_sandbox_of_its_own(lasting):
    assert lasting.says("ctypes.CDLL(None).unshare(0x10000000)") == "-1"
    assert lasting.says("ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)") == "-1"
    assert lasting.says("ctypes.CDLL(None).setuid(0)") == "-1"


def test_it_cannot_raise_its_limits(lasting):
    lasting.run("import resource")
    raised = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))"
    assert lasting.says(raised) == "ValueError"
    assert lasting.says("open('/proc/self/oom_score_adj').read().strip()") == "1000"


LAID = (
    *(".ipython/profile_default/startup/00.py", ".config/matplotlib/matplotlibrc", ".numba_config.yaml", "a.pth"),
    *(".local/lib/sitecustomize.py", ".cache/ipython/numba_cache/a.nbi", "/tmp/mlhood-a", "/dev/shm/a"),
)


def test_what_it_lays_for_the_next_is_gone_with_it(lasting, sandboxes):
    """Start-up files, settings and caches: in its home they are its own, and the package's cannot be written."""
    source = (
        f"import os\nfrom pathlib import Path\nplaces = [Path.home() / place for place in {LAID!r}]\n"
        "there = lambda: sum(place.exists() for place in places)"
    )
    laid = "for place in places:\n    place.parent.mkdir(parents=True, exist_ok=True)\n    place.write_text('x = 1')"
    lasting.run(f"{source}\n{laid}")
    assert lasting.says("there()") == str(len(LAID))
    package = Path(mlhood.__file__).parent
    for place in (package / "__pycache__" / "x.pyc", package / "sitecustomize.py"):
        assert lasting.says(f"open({str(place)!r}, 'w')") in {"OSError", "PermissionError", "FileNotFoundError"}
    with SandboxedKernel(lasting.kernel._target, sandboxes) as kernel:
        other = Attacked(kernel)
        other.run(source)
        assert other.says("there()") == "0"


def test_it_makes_no_memory_that_belongs_to_nobody(lasting):
    """What lies there no limit sees: it is no process's, and in no file system."""
    assert lasting.says("os.memfd_create('x')") == "OSError"
    assert lasting.says("ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600)") == "-1"
    assert lasting.says("ctypes.CDLL(None).msgget(0, 0o1600)") == "-1"


def test_the_first_process_may_do_no_more_than_it(lasting):
    """That one can be told what to do, for it is of the same user."""
    lasting.run(
        "def rights(pid):\n    lines = open(f'/proc/{pid}/status').read().split('\\n')\n"
        "    return ' '.join(line for line in lines if line.startswith(('CapPrm', 'NoNewPrivs', 'Seccomp:')))"
    )
    own = lasting.says("rights('self')").split()
    assert own == ["CapPrm:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert lasting.says("rights(1)").split() == own


def test_no_descriptor_of_the_grader_is_left_open(lasting):
    lasting.run("links = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2][:-1]")
    kinds = lasting.says("sorted({link.split(':')[0] for link in links})")
    assert not any(str(ROOT) in part or "mlhood-" in part for part in kinds.split("'"))


def test_a_socket_of_ours_is_not_reached_in_place_of_the_kernels(attacked, tmp_path_factory):
    place = tmp_path_factory.mktemp("s") / "ours"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        listening.settimeout(1)
        attacked.run(
            f"import os\nfor n in range(1, 6):\n    p = {str(attacked.kernel.scratch / 'kernel')!r} + f'-{{n}}'\n"
            f"    os.unlink(p)\n    os.symlink({str(place)!r}, p)\n"
            "import socket, stat, time\n"
            "for fd in range(3, 300):\n"
            "    try:\n        s = socket.socket(fileno=os.dup(fd))\n        s.shutdown(socket.SHUT_RDWR)\n"
            "    except OSError: pass\n"
            "time.sleep(1)",
            3,
        )
        with pytest.raises(TimeoutError):
            listening.accept()
    assert attacked.judged().earned == 1


def test_the_grader_holds_its_lock_against_a_flood_of_connections(lasting):
    """Strangers at the kernel's sockets are inside, and the grader asks on."""
    lasting.run(
        f"import zmq\nplace = {str(lasting.kernel.scratch / 'kernel')!r}\ncontext = zmq.Context()\n"
        "sockets = [context.socket(zmq.DEALER) for _ in range(20)]\n"
        "for s in sockets:\n    s.linger = 0\n    s.connect(f'ipc://{place}-1')\n    s.send(b'nonsense')"
    )
    assert lasting.judged().earned == 1
    assert threading.active_count() < 100
