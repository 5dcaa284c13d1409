"""Measure the ladder on this machine's GPU, if it has one, in a process in which `cuda` is not the simulator.

`python -m mlhood.gpu.on_device 4096` prints the rates beside those that `cost` predicts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd

from mlhood.errors import GPUError
from mlhood.gpu import cost
from mlhood.gpu.ladder import RUNGS, cuda

ROUNDS = 5
PROGRAM = "import sys, numba.cuda; from mlhood.gpu import on_device; on_device.main(int(sys.argv[1]))"


def measured(n: int) -> dict[str, Any]:
    """Return the GPU's name as `gpu` and as `rates` the GFLOP/s of each rung, and of cuBLAS through torch.

    Args:
        n: Rows and columns of the matrices.

    Returns:
        Empty if this machine has no GPU that Numba can use.

    Raises:
        GPUError: The program that measures fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    command = [sys.executable, "-c", PROGRAM, str(n)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GPUError("the ladder cannot be measured on this machine's GPU", got=done.stderr.strip())
    return json.loads(done.stdout)


def beside_predictions(result: dict[str, Any], n: int) -> pd.DataFrame:
    """Return the GFLOP/s of each rung, and those predicted if the GPU is in the table of `cost`.

    Args:
        result: What `measured` returns, not empty.
        n: Rows and columns of the matrices.
    """
    table = pd.DataFrame({"measured, GFLOP/s": result["rates"]})
    gpu = next((gpu for name, gpu in cost.GPUS.items() if name in result["gpu"]), None)
    if gpu is not None:
        predictions = {rung: cost.predicted(rung, n, gpu) for rung in RUNGS} | {"cuBLAS": (gpu.peak, "arithmetic")}
        table["predicted, GFLOP/s"] = pd.Series({name: rate / 1e9 for name, (rate, _) in predictions.items()})
        table["limited by"] = pd.Series({name: limit for name, (_, limit) in predictions.items()})
    return table.round(1)


def main(n: int) -> None:
    """Print as JSON what `measured` returns."""
    print(json.dumps(_measure(n) if cuda.is_available() else {}))


def _measure(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n), np.float32)
    want, rates = a @ b, {}
    on_device = [cuda.to_device(array) for array in (a, b, np.zeros_like(a))]
    for name, rung in RUNGS.items():
        blocks, threads = rung.grid(n, n)
        kernel = rung.kernel[blocks, threads]  # pyright: ignore[reportIndexIssue]
        rates[name] = 2e-9 * n**3 / _seconds(lambda kernel=kernel: kernel(*on_device))
        if not np.allclose(on_device[2].copy_to_host(), want, rtol=1e-3, atol=1e-2):
            raise GPUError("a kernel computes something else on this GPU", where=name, expected="the product by NumPy")
    rates |= _cublas(a, b)
    return {"gpu": cuda.get_current_device().name.decode(), "rates": rates}


def _seconds(run: Any) -> float:
    """Return the shortest time of several runs, after one that compiles."""
    run()
    seconds = []
    for _ in range(ROUNDS):
        start, end = cuda.event(), cuda.event()
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(cuda.event_elapsed_time(start, end) / 1e3)  # pyright: ignore[reportOptionalOperand]
    return min(seconds)


def _cublas(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = False
    x, y = (torch.from_numpy(array).cuda() for array in (a, b))
    seconds = []
    for _ in range(ROUNDS + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.mm(x, y)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return {"cuBLAS": 2e-9 * len(a) ** 3 / min(seconds)}


if __name__ == "__main__":
    size = int(sys.argv[1])
    here = measured(size)
    print(f"{here['gpu']}\n{beside_predictions(here, size)}" if here else "no GPU that Numba can use here")
