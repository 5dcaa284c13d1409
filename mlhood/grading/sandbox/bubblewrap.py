"""Bubblewrap's command line: what a foreign notebook sees of this machine, and nothing else."""

from __future__ import annotations

import functools
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.grading.sandbox import seccomp

HOME = Path("/student")
NOBODY = "65534"
TRIAL_DISK = 1 << 20
HOW_TO_GET_IT = (
    "install bubblewrap (Debian and Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap; "
    "Arch: pacman -S bubblewrap)"
)
HOW_TO_ALLOW_IT = (
    "allow unprivileged user namespaces: on Ubuntu 24.04 sysctl kernel.apparmor_restrict_unprivileged_userns=0, in "
    "Docker --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
    "systempaths=unconfined, in Podman --security-opt unmask=ALL"
)
ELSEWHERE = "grade on Linux, in a virtual machine or in WSL 2"
WITHOUT = (
    "; or pass --no-sandbox, which runs every submission with your own rights: it can read your files, the marks and "
    "the secret seed among them, change them, and use the network, so it is for work that you trust"
)
ISOLATION = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--clearenv"),
    *("--uid", NOBODY, "--gid", NOBODY, "--hostname", "sandbox"),
)
# the system: programs and libraries; of /etc what the loader, fonts, names and time zones need
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt/google", "/opt/microsoft")
SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "mime.types"),
    *("ssl/openssl.cnf", "chromium", "chromium.d", "OpenCL"),
)
# what the machine is: caches and cores, which measurements are told with
MACHINE = ("/sys/devices/system/cpu", "/sys/devices/system/node")
# without this list of fonts every browser makes it anew
FONTS = "/var/cache/fontconfig"
# settings of threads are part of what a measurement means; nothing else of the grader's environment crosses
PASSED = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NPROC", "PJRT_NPROC"),
    *("OMP_WAIT_POLICY", "OPENBLAS_CORETYPE", "MLHOOD_BROWSER", "PLAYWRIGHT_BROWSERS_PATH", "TZ"),
)


def problem() -> str:
    """Why there can be no sandbox on this machine, in words; empty if there can."""
    if not sys.platform.startswith("linux"):
        return f"bubblewrap needs Linux, and this is {sys.platform}"
    program = _program()
    return "bubblewrap (bwrap) was not found" if program is None else _refusal(program)


def advice() -> str:
    """What to do about the problem, where there is one."""
    if not sys.platform.startswith("linux"):
        return ELSEWHERE
    return HOW_TO_GET_IT if _program() is None else HOW_TO_ALLOW_IT


def require() -> None:
    """See that bubblewrap is there and may do its work.

    Raises:
        GradingError: It is not; says how to get it, and what it means to go without.
    """
    if what := problem():
        raise GradingError(
            "submissions cannot be kept apart from this machine",
            where="the sandbox",
            expected="bubblewrap on Linux, allowed to make user namespaces",
            got=what,
            todo=advice() + WITHOUT,
        )


@functools.cache
def _refusal(program: str) -> str:
    folders = [Path("/tmp/work")]  # noqa: S108 (inside of the sandbox)
    try:
        with seccomp.opened() as filters:
            attempt = subprocess.run(
                [*command(folders, TRIAL_DISK, program, filters), "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
                pass_fds=filters,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not run ({error})"
    return f"{program} is refused ({attempt.stderr.strip()[:500]})" if attempt.returncode else ""


def command(folders: list[Path], disk: int, program: str | None = None, filters: tuple[int, ...] = ()) -> list[str]:
    """The command that a program and its arguments are put behind.

    Args:
        folders: The folders that it may write, each a file system of its own in memory; it starts in the first. They
            need not exist outside, and what is written there is not seen outside.
        disk: Bytes that each may hold.
        program: Bubblewrap; by default the one on the path.
        filters: Descriptors that it inherits, and from which it reads what system calls are refused.
    """
    bwrap = program or _program() or "bwrap"
    last = ["--disable-userns"] if _can_forbid_nesting(bwrap) else []
    own = [Path("/tmp"), Path("/dev/shm"), HOME]  # noqa: S108 (the sandbox's)
    return [
        *(bwrap, *ISOLATION, *last, *_environment()),
        *(word for descriptor in filters for word in ("--seccomp", str(descriptor))),
        *("--proc", "/proc", "--dev", "/dev", *_in_memory(own, disk)),
        *(*_system(), *_python(), *_caches(), *_in_memory(folders, disk)),
        # what is fixed here is closed: else its memory had no limit
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(folders[0])),
    ]


def _program() -> str | None:
    return shutil.which("bwrap")


@functools.cache
def _can_forbid_nesting(bwrap: str) -> bool:
    """Since bubblewrap 0.8: no namespace in a namespace, where most holes of the kernel were."""
    try:
        asked = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "--disable-userns" in asked.stdout + asked.stderr


def environment(home: Path, temporary: Path) -> dict[str, str]:
    """All that foreign code is told of the grader's environment, with the folders that it gets as its own."""
    programs = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    values = {
        "PATH": os.pathsep.join(dict.fromkeys(programs)),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "LANG": "C.UTF-8",
        "USER": "student",
        "PYTHONPATH": str(package().parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",  # Jupyter's own; loaded ahead, pyplot asks for it
        "PIP_RETRIES": "0",  # there is no network, and pip would wait for it
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return values | {name: os.environ[name] for name in PASSED if name in os.environ}


def _environment() -> list[str]:
    values = environment(HOME, Path("/tmp"))  # noqa: S108 (the sandbox's own)
    return [word for name, value in values.items() for word in ("--setenv", name, value)]


def _system() -> list[str]:
    # bubblewrap leaves these open where it runs as root, and they belong to the whole machine
    words = _read_only([Path("/proc/sys"), Path("/proc/sysrq-trigger")])
    for place in map(Path, SYSTEM):
        words += ["--symlink", str(place.readlink()), str(place)] if place.is_symlink() else _read_only([place])
    words += _read_only([Path("/etc", name) for name in SETTINGS])
    # users and hosts of the sandbox, not of this machine
    for file in sorted(Path(__file__).with_name("etc").iterdir()):
        words += ["--ro-bind", str(file), f"/etc/{file.name}"]
    return words + _read_only([*map(Path, (*MACHINE, FONTS)), *_browsers()])


def _browsers() -> list[Path]:
    """Where a browser was chosen that is no part of the system."""
    program = shutil.which(os.environ.get("MLHOOD_BROWSER", ""))
    folders = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH"), program and Path(program).resolve().parent]
    places = [Path(folder).absolute() for folder in folders if folder and folder != "0"]
    return [place for place in places if not (place.is_relative_to("/usr") or Path.home().is_relative_to(place))]


def _python() -> list[str]:
    """This interpreter, its libraries and the package: not the folder that the package lies in."""
    program = Path(sys.executable)
    places = [Path(sys.base_prefix), Path(sys.prefix), program.parent, program.resolve().parent]
    places += [Path(name) for name in (*sys.path, site.getusersitepackages()) if Path(name).name in _LIBRARIES]
    kept: list[Path] = []
    for place in [*dict.fromkeys(places), package()]:
        if place.exists() and not any(place.is_relative_to(other) for other in (*kept, Path("/usr"))):
            kept.append(place)
    return _read_only(kept)


_LIBRARIES = {"site-packages", "dist-packages"}


def package() -> Path:
    """The folder of the package that we are."""
    return Path(__file__).resolve().parents[2]


def _in_memory(places: list[Path], size: int) -> list[str]:
    return [word for place in places for word in ("--size", str(size), "--tmpfs", str(place))]


def _caches() -> list[str]:
    """What would be made anew at every start, at the cost of seconds: matplotlib's list of fonts, compiled kernels."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = [*cache.glob("matplotlib/fontlist-*.json"), cache / "mlhood" / "kernels", cache / "ms-playwright"]
    return [
        word
        for place in found
        if place.exists()
        for word in ("--ro-bind", str(place), str(HOME / ".cache" / place.relative_to(cache)))
    ]


def _read_only(places: list[Path]) -> list[str]:
    return [word for place in places for word in ("--ro-bind-try", str(place), str(place))]
