"""What a new process takes to run a model: the time from the file to the first result, and its peak resident memory.

The processes load only what they measure, so this module imports no other library than the compiler's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.errors import CompilerError, MeasureError

ONNX_RUNTIME = "onnxruntime"
RUNS = 2  # the second one shows what stays allocated after the first
_STATUS = Path("/proc/self/status")
_DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64}


def compile_times(path: Path, target: str, batch: int) -> tuple[dict[str, float], int | None]:
    """Return what the first result of a model takes, without and with kernels and packed weights in the cache.

    Args:
        path: The model.
        target: A key of `TARGETS`.
        batch: Number of examples.

    Returns:
        The seconds from the file to the first result, "cold" and "cached"; and the peak resident memory in bytes of
        the process with the cache, None where the system does not tell.

    Raises:
        MeasureError: A process fails.
    """
    seconds, memory = {}, None
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached"):
            seconds[kind], memory = _in_new_process("first_result", path, target, batch, {"MLHOOD_CACHE": cache})
    return seconds, memory


def onnx_runtime_memory(path: Path, batch: int, threads: int) -> int | None:
    """Return the peak resident memory in bytes of a new process that loads and runs a model with ONNX Runtime.

    Args:
        path: The model.
        batch: Length of its dynamic axes.
        threads: Number of threads.

    Raises:
        MeasureError: The process fails.
    """
    return _in_new_process("onnx_runtime_result", path, threads, batch, {})[1]


def _in_new_process(program: str, path: Path, option: object, batch: int, variables: dict[str, str]) -> tuple[Any, Any]:
    code = f"import sys; from mlhood.compiler.bench.process import {program}; {program}(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(path), str(option), str(batch)]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    if done.returncode:
        got = done.stderr.strip().splitlines()[-1:]
        raise MeasureError("the process that runs the model failed", where=f"{option}", got=", ".join(got))
    seconds, memory = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory


# -- the programs of the processes


def first_result(path: str, target: str, batch: str) -> None:
    """Compile a model and run it; print the seconds to the first result, and the peak resident memory in bytes."""
    start = time.perf_counter()
    from mlhood.compiler.compile import Executable, compile
    from mlhood.compiler.hir.inputs import random_inputs

    executable = compile(path, target)
    if not isinstance(executable, Executable):
        raise CompilerError("the model was not compiled to the end", got=type(executable).__name__)
    types = {name: value.type for name, value in executable.graph.placeholders.items()}
    inputs = random_inputs(types, {"batch": int(batch)})
    executable.run(**inputs)
    seconds = time.perf_counter() - start
    for _ in range(RUNS - 1):
        executable.run(**inputs)
    _print(seconds)


def onnx_runtime_result(path: str, threads: str, batch: str) -> None:
    """Load a model with ONNX Runtime and run it; print as `first_result` does."""
    start = time.perf_counter()
    import onnxruntime

    from mlhood.measure.threading import session_options

    session = onnxruntime.InferenceSession(path, session_options(int(threads)), providers=["CPUExecutionProvider"])
    feed = {
        entry.name: np.zeros(
            [axis if isinstance(axis, int) else int(batch) for axis in entry.shape], _DTYPES[entry.type]
        )
        for entry in session.get_inputs()
    }
    session.run(None, feed)
    seconds = time.perf_counter() - start
    for _ in range(RUNS - 1):
        session.run(None, feed)
    _print(seconds)


def _print(seconds: float) -> None:
    sys.stdout.write(f"{json.dumps([seconds, peak_resident_memory()])}\n")


def peak_resident_memory() -> int | None:
    """Return the peak resident memory of this process in bytes, mapped files included; None if unknown.

    Not `getrusage`: what it reports for a new process begins with its parent's.
    """
    if not _STATUS.is_file():
        return None
    fields = dict(line.split(":", 1) for line in _STATUS.read_text(encoding="ascii").splitlines())
    kibibytes = fields.get("VmHWM", "").split()
    return 1024 * int(kibibytes[0]) if kibibytes else None
