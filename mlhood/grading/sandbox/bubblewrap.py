"""The command line of bubblewrap: all that an untrusted notebook sees of this machine."""

from __future__ import annotations

import functools
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.bare.files import SITE, BareFiles
from mlhood.grading.sandbox import seccomp
from mlhood.grading.sandbox.visible import GRADING, LIBRARY_FOLDERS, VISIBLE, checkout, hidden_folders, package

HOME, TEMPORARY = Path("/student"), Path("/tmp")  # noqa: S108 (the sandbox's)
NOBODY_ID = "65534"
TEST_DISK = 1 << 20
TIMEOUT_SECONDS = 300  # for what takes milliseconds unless the machine is busy
INSTALL_HINT = (
    "install bubblewrap (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap; "
    "Arch: pacman -S bubblewrap)"
)
PERMISSION_HINT = (
    "allow unprivileged user namespaces: on Ubuntu 24.04 sysctl kernel.apparmor_restrict_unprivileged_userns=0, in "
    "Docker --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined, in Podman --security-opt unmask=ALL"
)
OTHER_SYSTEMS_HINT = "grade on Linux, in a virtual machine or in WSL 2"
NO_SANDBOX_HINT = (
    "; or pass --no-sandbox, which runs every submission with your own rights: it can read your files, the marks and "
    "the secret seed among them, change them, and use the network, so it is for work that you trust"
)
ISOLATION = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--clearenv"),
    *("--uid", NOBODY_ID, "--gid", NOBODY_ID, "--hostname", "sandbox"),
)
# programs and libraries of the system, and the files of /etc that the loader, fonts and time zones need
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/google", "/opt/microsoft")
ETC_FILES = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "mime.types"),
    *("ssl/openssl.cnf", "chromium", "chromium.d", "OpenCL"),
)
# caches and cores of the machine, which measurements record
MACHINE = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# parts of a Python environment, for one that was made in the folder around the package
ENVIRONMENT_PARTS = ("bin", "etc", "include", "lib", "lib64", "pyvenv.cfg", "share")
# without this cache every browser scans the fonts again
FONTS = "/var/cache/fontconfig"
# thread settings affect measurements; no other variable of the grader's environment is passed on
PASSED_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC", "PJRT_NPROC"),
    *("OMP_WAIT_POLICY", "OPENBLAS_CORETYPE", "MLHOOD_BROWSER", "PLAYWRIGHT_BROWSERS_PATH", "TZ"),
)


def problem() -> str:
    """Return why sandboxes are not available on this machine, or an empty text if they are."""
    if not sys.platform.startswith("linux"):
        return f"bubblewrap needs Linux, and this is {sys.platform}"
    program = _program()
    return "bubblewrap (bwrap) was not found" if program is None else _test_error(program)


def advice() -> str:
    """Return what to do about the problem, if there is one."""
    if not sys.platform.startswith("linux"):
        return OTHER_SYSTEMS_HINT
    return INSTALL_HINT if _program() is None else PERMISSION_HINT


def require() -> None:
    """Check that sandboxes are available.

    Raises:
        GradingError: They are not; the message says how to install or permit bubblewrap, and what it means to run
            without it.
    """
    if what := problem():
        raise GradingError(
            "submissions cannot be isolated from this machine",
            where="the sandbox",
            expected="bubblewrap on Linux, with permission to create user namespaces",
            got=what,
            todo=advice() + NO_SANDBOX_HINT,
        )


@functools.cache
def _test_error(program: str) -> str:
    """Start a sandbox as the grader does, and return the error, if any."""
    folders = [Path("/tmp/work")]  # noqa: S108 (inside the sandbox)
    try:
        with seccomp.opened() as filters:
            attempt = subprocess.run(
                [*command(folders, TEST_DISK, program, filters), "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
                pass_fds=filters,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run ({error})"
    return f"{program} is not permitted ({attempt.stderr.strip()[:500]})" if attempt.returncode else ""


def command(
    folders: list[Path],
    disk: int,
    program: str | None = None,
    filters: tuple[int, ...] = (),
    *,
    view: Sequence[str] | None = None,
) -> list[str]:
    """Return the command that runs the program after it, with its arguments, in a sandbox.

    Args:
        folders: The writable folders, each a separate file system in memory; the program starts in the first. They
            need not exist outside, and files in them are not visible outside.
        disk: Size of each in bytes.
        program: Bubblewrap; by default the one on the path.
        filters: Inherited descriptors from which bubblewrap reads the seccomp filters.
        view: The arguments that show files and set variables; by default `student_view`.
    """
    bwrap = program or _program() or "bwrap"
    nesting = ["--disable-userns"] if _can_disable_nesting(bwrap) else []
    temporary = [TEMPORARY, Path("/dev/shm"), HOME]  # noqa: S108 (the sandbox's)
    return [
        *(bwrap, *ISOLATION, *nesting),
        *(word for descriptor in filters for word in ("--seccomp", str(descriptor))),
        *("--proc", "/proc", "--dev", "/dev", *_in_memory(temporary, disk)),
        *(*(student_view() if view is None else view), *_in_memory(folders, disk)),
        # these file systems are in memory without a size limit, so they must not be writable
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(folders[0])),
    ]


def student_view(*, grader: bool = False) -> list[str]:
    """Return the arguments that show what a notebook needs.

    Args:
        grader: Whether the program is ours, and needs the package with nothing hidden.
    """
    return [*_variables(environment(HOME, TEMPORARY)), *_system(), *_python(grader=grader), *_caches()]


def bare_view(bare: BareFiles) -> list[str]:
    """Return the arguments that show the files of a bare kernel."""
    values = {**environment(HOME, TEMPORARY), "PATH": "", "PYTHONPATH": str(SITE)}
    return [*_variables(values), *_users(), *_read_only([*map(Path, MACHINE)]), *bare.view()]


def _variables(values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in ("--setenv", name, value)]


def _program() -> str | None:
    return shutil.which("bwrap")


@functools.cache
def _can_disable_nesting(bwrap: str) -> bool:
    """Whether bubblewrap (0.8 and newer) can disable nested user namespaces, where many vulnerabilities were."""
    try:
        usage = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--disable-userns" in usage.stdout + usage.stderr


def environment(home: Path, temporary: Path) -> dict[str, str]:
    """Return the environment variables of untrusted code, with its own home and temporary folder."""
    programs = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    values = {
        "PATH": os.pathsep.join(dict.fromkeys(programs)),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "USER": "student",
        "PYTHONPATH": str(package().parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Jupyter's own, for a pyplot that is imported in advance
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PIP_RETRIES": "0",  # pip would wait for the network, which there is not
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": "-p no:mlhood",  # the package's own plugin is not visible
    }
    return values | {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}


def _system() -> list[str]:
    # if bubblewrap runs as root, these are writable otherwise, and affect the whole machine
    words = _read_only([Path("/proc/sys"), Path("/proc/sysrq-trigger")])
    for path in map(Path, SYSTEM):
        words += ["--symlink", str(path.readlink()), str(path)] if path.is_symlink() else _read_only([path])
    words += _read_only([Path("/etc", name) for name in ETC_FILES])
    return words + _users() + _read_only([*map(Path, (*MACHINE, FONTS)), *_browsers()])


def _users() -> list[str]:
    """Bind users and hosts of the sandbox instead of those of this machine."""
    files = sorted(Path(__file__).with_name("etc").iterdir())
    return [word for file in files for word in ("--ro-bind", str(file), f"/etc/{file.name}")]


def _browsers() -> list[Path]:
    """Return the folders of a configured browser that is not part of the system."""
    program = shutil.which(os.environ.get("MLHOOD_BROWSER", ""))
    folders = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), program and Path(program).resolve().parent]
    paths = [Path(folder).absolute() for folder in folders if folder and folder != "0"]
    return [path for path in paths if not (path.is_relative_to("/usr") or Path.home().is_relative_to(path))]


def _python(*, grader: bool = False) -> list[str]:
    """Bind this interpreter, its libraries and the package, without the folder around it.

    Args:
        grader: Whether code of ours runs there, which needs all of the package; a student's sees no grading.
    """
    program, around = Path(sys.executable), checkout()
    paths = [Path(sys.base_prefix), Path(sys.prefix), program.parent, program.resolve().parent]
    paths += [Path(name) for name in (*sys.path, site.getusersitepackages()) if Path(name).name in LIBRARY_FOLDERS]
    paths.append(package())
    if around in paths:
        paths += [around / part for part in ENVIRONMENT_PARTS]
    within = [path for path in paths if around and path.is_relative_to(around)]
    inside = _outermost(path for path in within if path != around)
    outside = _outermost([Path("/usr"), *(path for path in paths if path not in within)])
    emptied = [around] if around and any(around.is_relative_to(path) for path in outside) else []
    hidden = [] if grader else hidden_folders([*outside, *inside])
    return [
        *_read_only([path for path in outside if path != Path("/usr")]),
        *(word for path in emptied for word in ("--tmpfs", str(path))),
        *_read_only(inside),
        *(word for path in hidden for word in ("--tmpfs", str(path))),
        *_read_only([] if grader else [package() / GRADING / name for name in VISIBLE]),
        *(word for path in (*emptied, *hidden) for word in ("--remount-ro", str(path))),
    ]


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the existing ones of these paths that are not inside an earlier one."""
    outermost: list[Path] = []
    for path in paths:
        if path.exists() and not any(path.is_relative_to(other) for other in outermost):
            outermost.append(path)
    return outermost


def _in_memory(paths: list[Path], size: int) -> list[str]:
    return [word for path in paths for word in ("--size", str(size), "--tmpfs", str(path))]


def _caches() -> list[str]:
    """Bind caches that would take seconds to create at every start: matplotlib's list of fonts, compiled kernels."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    paths = [*cache.glob("matplotlib/fontlist-*.json"), cache / "mlhood" / "kernels", cache / "ms-playwright"]
    return [
        word
        for path in paths
        if path.exists()
        for word in ("--ro-bind", str(path), str(HOME / ".cache" / path.relative_to(cache)))
    ]


def _read_only(paths: list[Path]) -> list[str]:
    return [word for path in paths for word in ("--ro-bind-try", str(path), str(path))]
