"""Whether the libraries are installed, have the required versions, and can be imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from importlib import metadata

from packaging.requirements import Requirement

from mlhood.doctor.finding import Finding

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
_TIMEOUT = 60  # seconds
_INSTALL = "run the README's first command again; it installs what is missing"
_LOAD = _INSTALL + " (Windows: torch and onnxruntime need Microsoft's Visual C++ Redistributable)"


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
        return Finding("libraries", False, "; ".join(problems + errors), todo, required=True)
    message = f"all {len(requirements())} are installed in the required versions, and those with native code load"
    return Finding("libraries", True, message, required=True)


def libraries_for_tests() -> Finding:
    """Check the libraries that only the tests need."""
    problems = unmet(requirements("test"))
    if problems:
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
