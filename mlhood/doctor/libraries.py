"""Are the libraries there, in the versions that the package asks for, and do they load?"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from importlib import metadata

from packaging.requirements import Requirement

from mlhood.doctor.finding import Finding

# those with machine code of their own, which can be installed and still not load: module -> library.
# The slowest come first, so that they load beside the others.
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
_SECONDS = 60
_INSTALL = "run the README's first command again; it installs what is missing"
_LOAD = _INSTALL + " (Windows: torch and onnxruntime need Microsoft's Visual C++ Redistributable)"


def libraries(executor: Executor, modules: Mapping[str, str] = NATIVE) -> Finding:
    """Return whether all required libraries have the right version and load, each in a process of its own.

    A library built for another processor, or against a missing system library, ends the process that imports
    it, so the import is never tried in this one.
    """
    wrong = unmet(required())
    installed = [module for module, library in modules.items() if is_installed(library)]
    failures = [failure for failure in executor.map(load_failure, installed) if failure]
    if wrong or failures:
        todo = _LOAD if failures else _INSTALL
        return Finding("libraries", False, "; ".join(wrong + failures), todo, required=True)
    says = f"all {len(required())} are there in the versions asked for, and those with machine code load"
    return Finding("libraries", True, says, required=True)


def libraries_for_tests() -> Finding:
    """Return whether the libraries that only the tests need are there."""
    wrong = unmet(required("test"))
    if wrong:
        todo = "run the README's second command; it installs them"
        return Finding("test libraries", False, "; ".join(wrong), todo)
    return Finding("test libraries", True, "those that only the tests need are there")


def required(extra: str = "") -> list[Requirement]:
    """Return what the installed package asks for: always, or only with an extra."""
    asked = [Requirement(text) for text in metadata.requires("mlhood") or []]
    return [one for one in asked if _applies(one, extra) and (not extra or not _applies(one, ""))]


def unmet(requirements: Iterable[Requirement], version: Callable[[str], str] = metadata.version) -> list[str]:
    """Return in words what is not installed, and what is in another version than asked for."""
    missing, wrong = [], []
    for requirement in requirements:
        try:
            have = version(requirement.name)
        except metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(have, prereleases=True):
            wrong.append(f"{requirement.name} is {have}, but {requirement.specifier} is needed")
    return ([f"not installed: {', '.join(missing)}"] if missing else []) + wrong


def is_installed(library: str) -> bool:
    """Return whether a library is installed, in whatever version."""
    try:
        metadata.version(library)
    except metadata.PackageNotFoundError:
        return False
    return True


def load_failure(module: str) -> str | None:
    """Return why a module does not load, or None if it does."""
    failure, _ = attempt(f"import {module}")
    return f"{module} does not load ({failure})" if failure else None


def attempt(code: str) -> tuple[str | None, str]:
    """Run code in a Python process of its own; return why it fails, or None, and what it prints."""
    try:
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not within {_SECONDS} s", ""
    if process.returncode == 0:
        return None, process.stdout
    return _reason(process.returncode, process.stderr), process.stdout


def _reason(returncode: int, stderr: str) -> str:
    if returncode < 0:
        return f"its process ends with {signal.Signals(-returncode).name}"
    # the lines of a traceback, and of an error's own details, are indented
    lines = [line for line in stderr.splitlines() if line and not line.startswith(" ")]
    return lines[-1] if lines else f"exit code {returncode}"


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})
