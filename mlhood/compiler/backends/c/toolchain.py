"""The C compilers on this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mlhood.errors import CompilerError

TIMEOUT = 600  # seconds
_INSTALL = {
    "clang": "apt-get install clang lld; on macOS brew install llvm lld; on Windows winget install LLVM.LLVM",
    "wasm-ld": "apt-get install lld; on macOS brew install lld; on Windows winget install LLVM.LLVM",
}


def find_program(name: str) -> str:
    """Return the path of clang or wasm-ld, whose name may end in a version.

    Raises:
        CompilerError: It is not installed.
    """
    for candidate in (name, *(f"{name}-{version}" for version in range(22, 10, -1))):
        path = shutil.which(candidate)
        if path is not None:
            return path
    raise CompilerError(
        "a program that is needed for WebAssembly is not installed",
        expected=f"{name} on the path",
        got="none",
        todo=f"{_INSTALL.get(name, 'install it')}; or write C alone: --target c",
    )


def run_program(command: Sequence[str | Path], folder: Path) -> None:
    """Run a compiler or a linker in a folder.

    Raises:
        CompilerError: It fails, or takes longer than ten minutes; the error has its first messages.
    """
    try:
        done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError("a compiler cannot be run", where=str(command[0]), got=error) from error
    if done.returncode:
        messages = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise CompilerError("a compiler refused the C of the model", where=str(command[0]), got=messages)
