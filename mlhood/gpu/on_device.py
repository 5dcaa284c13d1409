"""Measure the ladder on this machine's GPU: `python -m mlhood.gpu.on_device 4096` prints its rates beside `cost`'s."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
from numba.core import config

if __name__ == "__main__":
    config.ENABLE_CUDASIM = 0  # not the simulator, which this package selects  # pyright: ignore[reportAttributeAccessIssue]

from mlhood.errors import GPUError
from mlhood.gpu import cost
from mlhood.gpu.ladder import RUNGS, cuda

ROUNDS = 5


def measured(n: int) -> dict[str, float]:
    """Return the GFLOP/s of each rung for n x n matrices, and of cuBLAS through torch.

    Raises:
        GPUError: A kernel computes something else than NumPy.
    """
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n, n), np.float32)
    want, seconds = a @ b, {}
    on_device = [cuda.to_device(array) for array in (a, b, np.zeros_like(a))]
    for name, rung in RUNGS.items():
        blocks, threads = rung.grid(n, n)
        kernel = rung.kernel[blocks, threads]  # pyright: ignore[reportIndexIssue]
        seconds[name] = _seconds(lambda kernel=kernel: kernel(*on_device))
        if not np.allclose(on_device[2].copy_to_host(), want, rtol=1e-3, atol=1e-2):
            raise GPUError("a kernel computes something else on this GPU", where=name, expected="the product by NumPy")
    import torch

    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = False
        x, y = (torch.from_numpy(array).cuda() for array in (a, b))
        seconds["cuBLAS"] = _seconds(lambda: torch.mm(x, y))
    return {name: 2e-9 * n**3 / shortest for name, shortest in seconds.items()}


def _seconds(run: Callable[[], object]) -> float:
    """Return the shortest time of several runs on the default stream, after one that compiles."""
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


def beside_predictions(name: str, rates: dict[str, float], n: int) -> pd.DataFrame:
    """Return the measured GFLOP/s for n x n matrices, and those predicted if the GPU is in the table of `cost`."""
    table = pd.DataFrame({"measured, GFLOP/s": rates})
    gpu = next((gpu for known, gpu in cost.GPUS.items() if known in name), None)
    if gpu is not None:
        predictions = {rung: cost.predicted(rung, n, gpu) for rung in RUNGS} | {"cuBLAS": (gpu.peak, "arithmetic")}
        table["predicted, GFLOP/s"] = pd.Series({rung: rate / 1e9 for rung, (rate, _) in predictions.items()})
        table["limited by"] = pd.Series({rung: limit for rung, (_, limit) in predictions.items()})
    return table.round(1)


if __name__ == "__main__":
    if cuda.is_available():
        size, gpu_name = int(sys.argv[1]), cuda.get_current_device().name.decode()
        print(f"{gpu_name}\n{beside_predictions(gpu_name, measured(size), size)}")
    else:
        print("no GPU that Numba can use here")
