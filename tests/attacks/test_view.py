"""A hostile notebook sees and reaches nothing outside its sandbox."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

import mlhood
from tests.attacks.attacked import SECRET, Attacked

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("instructor") / "seed.txt"
    path.write_text(SECRET)
    return path


def test_it_has_its_own_user_and_home(shared):
    assert shared.eval("os.getuid(), os.getgid(), os.uname().nodename") == "65534 65534 sandbox"
    assert shared.eval("Path.home(), os.getcwd() == str(Path.cwd())") == "/student True"
    assert shared.eval("__import__('getpass').getuser()") == "student"


def test_the_seed_file_is_not_visible(shared, secret):
    assert shared.eval(f"open({str(secret)!r}).read()") == "FileNotFoundError"
    assert shared.eval(f"os.listdir({str(secret.parents[1])!r})") == "FileNotFoundError"


@pytest.mark.parametrize("name", ["P1.ipynb", "tests", "README.md", ".git", "pyproject.toml"])
def test_of_the_course_only_the_package_is_visible(shared, name):
    root = Path(mlhood.__file__).parents[1]
    assert shared.eval(f"os.path.exists({str(ROOT / name)!r}), os.path.exists({str(root / name)!r})") == "False False"
    environment = Path(sys.prefix)  # the README's lies in the course's folder
    seen = {"mlhood"} | ({environment.name} if environment.parent == root else set())
    assert shared.eval(f"set(os.listdir({str(root)!r})) == {seen!r}") == "True"


def test_the_home_of_the_grader_is_not_visible(shared):
    home = Path.home().resolve()
    shown = set(shared.eval(f"'/'.join(os.listdir({str(home)!r}))").split("/"))
    # the interpreter, its libraries and the package may be installed there; of all else nothing is mounted
    mounted = [Path(mlhood.__file__).parent, Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)]
    below = {path.resolve().relative_to(home).parts[0] for path in mounted if path.resolve().is_relative_to(home)}
    assert shown <= {"FileNotFoundError"} | below


def test_another_submission_is_not_visible(shared, pool):
    other = pool.start_next()
    try:
        other.start() if not other.started else None
        assert shared.eval(f"os.path.exists({str(other.folder.parent)!r})") == "False"
    finally:
        other.close()


def test_the_environment_of_the_grader_is_not_inherited(shared):
    assert os.environ["GRADEBOOK_TOKEN"] == SECRET
    assert SECRET not in shared.eval("dict(os.environ)")
    assert SECRET not in shared.eval("Path('/proc/1/environ').read_bytes() + Path('/proc/self/environ').read_bytes()")


def test_the_processes_of_the_host_are_not_visible(shared):
    assert int(shared.eval("len([pid for pid in os.listdir('/proc') if pid.isdigit()])")) <= 3
    assert shared.eval(f"os.kill({os.getpid()}, 0)") == "ProcessLookupError"
    assert shared.eval("os.path.samefile('/proc/1/root', '/')") == "True"  # the first one's root is the same


def test_no_socket_of_the_host_is_reached(shared):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = listening.getsockname()
        assert shared.eval(f"socket.create_connection({address}, 2)") == "ConnectionRefusedError"


def test_no_abstract_socket_of_the_host_is_reached(shared):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0mlhood-test-{os.getpid()}")
        listening.listen()
        reach = f"socket.socket(socket.AF_UNIX).connect('\\0mlhood-test-{os.getpid()}')"
        assert shared.eval(reach) == "ConnectionRefusedError"


def test_there_is_no_network(shared):
    assert shared.eval("[name for _, name in socket.if_nameindex()]") == "['lo']"
    assert shared.eval("socket.create_connection(('192.0.2.1', 80), 2)") == "OSError"
    assert shared.eval("socket.getaddrinfo('example.org', 80)") == "gaierror"


def test_its_own_loopback_works(shared):
    shared.run(
        'server = \'import socket, sys; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], '
        'flush=True); c, _ = s.accept(); c.sendall(b"hello")\'\n'
        "child = subprocess.Popen([sys.executable, '-c', server], stdout=subprocess.PIPE, text=True)\n"
        "port = int(child.stdout.readline())"
    )
    assert shared.eval("socket.create_connection(('127.0.0.1', port), 5).recv(9)") == "b'hello'"


@pytest.mark.parametrize(
    "path",
    [
        *("/x", "/usr/x", "/etc/passwd", "/dev/x", "/sys/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"),
        *(mlhood.__file__, os.__file__),
    ],
)
def test_foreign_files_cannot_be_written(shared, path):
    assert shared.eval(f"open({path!r}, 'r+b' if os.path.exists({path!r}) else 'wb')") in {
        *("OSError", "PermissionError", "FileNotFoundError")
    }


def test_it_cannot_make_a_sandbox_of_its_own(shared):
    assert shared.eval("ctypes.CDLL(None).unshare(0x10000000)") == "-1"
    assert shared.eval("ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None)") == "-1"
    assert shared.eval("ctypes.CDLL(None).setuid(0)") == "-1"


def test_it_cannot_raise_its_limits(shared):
    shared.run("import resource")
    raised = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))"
    assert shared.eval(raised) == "ValueError"
    assert shared.eval("open('/proc/self/oom_score_adj').read().strip()") == "1000"


PLANTED = (
    *(".ipython/profile_default/startup/00.py", ".config/matplotlib/matplotlibrc", ".numba_config.yaml", "a.pth"),
    *(".local/lib/sitecustomize.py", ".cache/ipython/numba_cache/a.nbi", "/tmp/mlhood-a", "/dev/shm/a"),
)


def test_files_planted_for_the_next_submission_disappear(shared, pool):
    """Start-up files, settings and caches: those in its home are its own, and the package's cannot be written."""
    source = (
        f"import os\nfrom pathlib import Path\npaths = [Path.home() / path for path in {PLANTED!r}]\n"
        "count = lambda: sum(path.exists() for path in paths)"
    )
    plant = "for path in paths:\n    path.parent.mkdir(parents=True, exist_ok=True)\n    path.write_text('x = 1')"
    shared.run(f"{source}\n{plant}")
    assert shared.eval("count()") == str(len(PLANTED))
    package = Path(mlhood.__file__).parent
    for path in (package / "__pycache__" / "x.pyc", package / "sitecustomize.py"):
        assert shared.eval(f"open({str(path)!r}, 'w')") in {"OSError", "PermissionError", "FileNotFoundError"}
    with pool.kernel(shared.kernel.folder) as kernel:
        other = Attacked(kernel)
        other.run(source)
        assert other.eval("count()") == "0"


def test_it_cannot_allocate_memory_outside_processes_and_file_systems(shared):
    """No limit would apply to such memory."""
    assert shared.eval("os.memfd_create('x')") == "OSError"
    assert shared.eval("ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600)") == "-1"
    assert shared.eval("ctypes.CDLL(None).msgget(0, 0o1600)") == "-1"


def test_the_first_process_has_no_more_rights(shared):
    """The notebook could take it over, since both have the same user."""
    shared.run(
        "def rights(pid):\n    lines = open(f'/proc/{pid}/status').read().split('\\n')\n"
        "    return ' '.join(line for line in lines if line.startswith(('CapPrm', 'NoNewPrivs', 'Seccomp:')))"
    )
    rights = shared.eval("rights('self')").split()
    assert rights == ["CapPrm:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert shared.eval("rights(1)").split() == rights


def test_no_descriptor_of_the_grader_is_inherited(shared):
    shared.run("links = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2][:-1]")
    kinds = shared.eval("sorted({link.split(':')[0] for link in links})")
    assert not any(str(ROOT) in part or "mlhood-" in part for part in kinds.split("'"))
