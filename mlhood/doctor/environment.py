"""The checks: libraries that are installed and load, a browser, a sandbox, free disk space, a local port."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from mlhood.measure.machine import binary_size

# module -> library, for those with native code, which may be installed and yet fail to load.
# The slowest come first: the others load meanwhile.
NATIVE = {
    "torch": "torch",
    "jax": "jax",
    "sklearn": "scikit-learn",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "scipy": "scipy",
    "numba": "numba",
    "onnxruntime": "onnxruntime",
    "onnx": "onnx",
    "numpy": "numpy",
    "llvmlite.binding": "llvmlite",
    "ipykernel": "ipykernel",
    "playwright.sync_api": "playwright",
}
_TIMEOUT = 300  # seconds; a busy machine or a cold disk takes many times what loading a library usually takes
_INSTALL = "run the README's first command again; it installs what is missing"
_LOAD = _INSTALL + " (Windows: torch and onnxruntime need Microsoft's Visual C++ Redistributable)"
FREE_BYTES = 2**30  # ample for the executed notebooks, models and reports of a complete run
_WASM_TODO = (
    "install clang and lld (Debian and Ubuntu: apt-get install clang lld; macOS: brew install llvm lld; "
    "Windows: winget install LLVM.LLVM)"
)
_BROWSER_TODO = (
    "install Chromium, Chrome or Edge (Debian and Ubuntu: apt-get install chromium; "
    "macOS: brew install --cask chromium; Windows has Edge)"
)


REQUIRED = "all notebooks"
# what each check is for
PURPOSES = {
    "libraries": REQUIRED,
    "disk": REQUIRED,
    "local port": REQUIRED,
    "browser": "drawing a model as SVG, PNG or PDF",
    "sandbox": "grading a class (mlhood grade)",
    "WebAssembly tools": "mlhood compile --target wasm",
    "test libraries": "the repository's own tests",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Args:
        name: What was checked, a key of `PURPOSES`.
        works: Whether it works on this machine.
        message: One sentence for the user.
        todo: How to repair it if it does not work.
    """

    name: str
    works: bool
    message: str
    todo: str = ""

    @property
    def required(self) -> bool:
        """Whether the course cannot run without it."""
        return PURPOSES[self.name] == REQUIRED


def libraries(executor: Executor, modules: Mapping[str, str] = NATIVE) -> Finding:
    """Check that all required libraries have the right version and can be imported, each in a separate process.

    A library built for another processor, or against a missing system library, kills the process that imports it, so
    imports are never tried in this one.
    """
    problems = unmet(requirements())
    installed = [module for module, library in modules.items() if is_installed(library)]
    errors = [error for error in executor.map(import_error, installed) if error]
    if problems or errors:
        todo = _LOAD if errors else _INSTALL
        return Finding("libraries", False, "; ".join(problems + errors), todo)
    message = f"all {len(requirements())} are installed in the required versions, and those with native code load"
    return Finding("libraries", True, message)


def libraries_for_tests() -> Finding | None:
    """Check the libraries that only the tests need, which the student version does not have."""
    required = requirements("test")
    if not required:
        return None
    if problems := unmet(required):
        todo = "run the README's second command; it installs them"
        return Finding("test libraries", False, "; ".join(problems), todo)
    return Finding("test libraries", True, "those that only the tests need are installed")


def requirements(extra: str = "") -> list[Requirement]:
    """Return the package's requirements, or only those that an extra adds."""
    declared = [Requirement(text) for text in metadata.requires("mlhood") or []]
    return [r for r in declared if _applies(r, extra) and (not extra or not _applies(r, ""))]


def unmet(requirements: Iterable[Requirement], version: Callable[[str], str] = metadata.version) -> list[str]:
    """Return messages about libraries that are missing or have another version than required."""
    missing, mismatched = [], []
    for requirement in requirements:
        try:
            installed = version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            mismatched.append(f"{requirement.name} is {installed}, but {requirement.specifier} is needed")
    return ([f"not installed: {', '.join(missing)}"] if missing else []) + mismatched


def is_installed(library: str) -> bool:
    """Return whether a library is installed, in any version."""
    try:
        metadata.version(library)
    except metadata.PackageNotFoundError:
        return False
    return True


def import_error(module: str) -> str | None:
    """Return a message about why a module cannot be imported, or None if it can."""
    error, _ = run_python(f"import {module}")
    return f"{module} does not load ({error})" if error else None


def run_python(code: str) -> tuple[str | None, str]:
    """Run code in a separate Python process; return the error, or None, and standard output."""
    try:
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not within {_TIMEOUT} s", ""
    if process.returncode == 0:
        return None, process.stdout
    return _reason(process.returncode, process.stderr), process.stdout


def _reason(returncode: int, stderr: str) -> str:
    if returncode < 0:
        return f"its process ends with {signal.Signals(-returncode).name}"
    # the lines of a traceback, and of an error's details, are indented
    lines = [line for line in stderr.splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else f"exit code {returncode}"


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def browser(path: Path | None) -> Finding:
    """Check that the browser at `path` starts headless and finds a font."""
    if path is None:
        return Finding("browser", False, "no Chromium, Chrome or Edge was found", _BROWSER_TODO)
    from playwright.sync_api import Error

    try:
        version, width = _launch(path)
    except (Error, OSError) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")
        message = f"{path} does not start headless ({reason})"
        return Finding("browser", False, message, _BROWSER_TODO)
    if not width:
        todo = "install a font (Debian and Ubuntu: apt-get install fonts-dejavu-core)"
        return Finding("browser", False, f"{path} starts, but finds no font", todo)
    return Finding("browser", True, f"{path} starts headless (version {version})")


def sandbox() -> Finding | None:
    """Check that the sandbox in which `mlhood grade` runs submissions works here; the student version has none."""
    try:
        from mlhood.grading.sandbox import bubblewrap
    except ModuleNotFoundError:
        return None
    if problem := bubblewrap.problem():
        return Finding("sandbox", False, problem, bubblewrap.advice())
    return Finding("sandbox", True, "bubblewrap isolates a process from files and network")


def webassembly(error: str | None, paths: str) -> Finding:
    """Tell whether the programs by which a model becomes WebAssembly are installed."""
    if error:
        return Finding("WebAssembly tools", False, f"clang or wasm-ld cannot be used ({error})", _WASM_TODO)
    return Finding("WebAssembly tools", True, f"{paths} are installed")


def disk(folder: Path, needed: int = FREE_BYTES) -> Finding:
    """Check that `folder` is writable and has at least `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        todo = "free some space, or work in a folder on another disk"
        return Finding("disk", False, f"{binary_size(free)} free, {binary_size(needed)} needed", todo)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        todo = "work in a writable folder"
        return Finding("disk", False, f"this folder is not writable ({os.strerror(error.errno or 0)})", todo)
    return Finding("disk", True, f"{binary_size(free)} free, and this folder is writable")


def local_port() -> Finding:
    """Check that a local port opens and accepts connections; notebooks and Netron communicate through one."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        todo = "allow connections to 127.0.0.1 in the firewall or the container"
        return Finding("local port", False, f"127.0.0.1 is not reachable ({error})", todo)
    return Finding("local port", True, "a port on 127.0.0.1 opens and accepts connections")


def _launch(path: Path) -> tuple[str, float]:
    """Return the browser's version and the width in pixels of a rendered word."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, timeout=1000 * _TIMEOUT)
        page = chromium.new_page()
        width = page.evaluate("document.createElement('canvas').getContext('2d').measureText('Conv').width")
        version = chromium.version
        chromium.close()
    return version, float(width)
