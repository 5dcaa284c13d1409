"""What a new process takes to run a model: the time from the file to the first result.

The process loads only what it measures, so this module imports no other library than the compiler's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mlhood.errors import CompilerError, MeasureError


def compile_times(path: Path, target: str, batch: int) -> dict[str, float]:
    """Return the seconds from a file to the first result, "cold" and with kernels and packed weights "cached".

    Args:
        path: The model.
        target: A key of `TARGETS`.
        batch: Number of examples.

    Raises:
        MeasureError: A process fails.
    """
    code = f"import sys; from {__name__} import first_result; first_result(*sys.argv[1:])"
    command, seconds = [sys.executable, "-c", code, str(path), target, str(batch)], {}
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            variables = {**os.environ, "MLHOOD_CACHE": cache}
            done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
            if done.returncode:
                got = done.stderr.strip().splitlines()[-1:]
                raise MeasureError("the process that runs the model failed", where=target, got=", ".join(got))
            seconds[kind] = float(done.stdout.splitlines()[-1])
    return seconds


def first_result(path: str, target: str, batch: str) -> None:
    """Compile a model and run it; print the seconds to the first result."""
    start = time.perf_counter()
    from mlhood.compiler.compile import Executable, compile
    from mlhood.compiler.hir.inputs import random_inputs

    executable = compile(path, target)
    if not isinstance(executable, Executable):
        raise CompilerError("the model was not compiled to the end", got=type(executable).__name__)
    types = {name: value.type for name, value in executable.graph.placeholders.items()}
    executable.run(random_inputs(types, {"batch": int(batch)}))
    sys.stdout.write(f"{time.perf_counter() - start}\n")
