"""How many threads the libraries take: fixed for those that can be told while they run, explained for the others.

BLAS and OpenMP (threadpoolctl), torch, Numba and our own kernels can be told at any time. ONNX Runtime is told when a
session is made (`session_options`), JAX when its process starts (`environment`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from mlhood.errors import MeasureError

_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
    # XLA's CPU client sizes its pools by these (xla/pjrt/utils.cc, DefaultThreadPoolSize; the name has changed)
    "PJRT_NPROC",
    "NPROC",
)


class Threads:
    """A number of threads, and to which libraries it has been applied.

    Args:
        count: Threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.applied: dict[str, int] = {}
        self._restore = ExitStack()
        self._pools = None

    def apply(self) -> None:
        """Tell all libraries that are loaded by now; those that are told already are told again."""
        for name, apply in _LIBRARIES.items():
            if name in sys.modules:
                restore = apply(sys.modules[name], self.count)
                if name not in self.applied:
                    self._restore.callback(restore)
                self.applied[name] = self.count
        self._apply_to_pools()

    def _apply_to_pools(self) -> None:
        """Tell BLAS and OpenMP, last: torch and NumPy may have brought libraries of their own."""
        from threadpoolctl import ThreadpoolController, threadpool_limits

        self._restore.enter_context(threadpool_limits(self.count))
        for pool in ThreadpoolController().info():
            self.applied[f"{pool['user_api']}: {pool['internal_api']}"] = pool["num_threads"]

    def restore(self) -> None:
        """Give all libraries the threads they had before."""
        self._restore.close()

    def notes(self) -> list[str]:
        """Say which libraries in this process have chosen their threads themselves, and how to choose for them."""
        found = []
        if "onnxruntime" in sys.modules:
            found.append(f"ONNX Runtime: give sessions `session_options({self.count})`")
        if "jax" in sys.modules and os.environ.get("PJRT_NPROC", os.environ.get("NPROC")) != str(self.count):
            found.append(f"JAX: start the process with the variables of `environment({self.count})`")
        return found


def _torch(torch: Any, count: int) -> Callable[[], object]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    return lambda: torch.set_num_threads(before)


def _numba(numba: Any, count: int) -> Callable[[], object]:
    most = numba.config.NUMBA_NUM_THREADS
    if count > most:
        raise MeasureError(
            "Numba was started with fewer threads",
            expected=f"at most {most}",
            got=count,
            todo=f"start the process with NUMBA_NUM_THREADS={count}",
        )
    before = numba.get_num_threads()
    numba.set_num_threads(count)
    return lambda: numba.set_num_threads(before)


def _kernels(parallel: Any, count: int) -> Callable[[], object]:
    before = parallel.set_threads(count)
    return lambda: parallel.set_threads(before)


# module -> what tells it: found by name among what is loaded, so that nothing is loaded here, not even our own kernels
_LIBRARIES: dict[str, Callable[[Any, int], Callable[[], object]]] = {
    "torch": _torch,
    "numba": _numba,
    "mlhood.kernels.parallel": _kernels,
}


@contextmanager
def threads(count: int) -> Iterator[Threads]:
    """Fix the threads of BLAS, OpenMP, torch, Numba and our kernels, as far as they are loaded; give them back after.

    Our kernels are told for the thread that asks; the others for the whole process.

    Yields:
        What has been told how many threads: `applied`; `apply()` tells what has been loaded since; `notes()` says what
        has to be started differently.

    Raises:
        MeasureError: The number is not 1 or more, or more than Numba was started with.
    """
    fixed = Threads(_count(count))
    try:
        fixed.apply()
        yield fixed
    finally:
        fixed.restore()


def session_options(count: int) -> Any:
    """Return `onnxruntime.SessionOptions` with which an ONNX Runtime session takes this many threads.

    Its threads stop spinning when a run ends: otherwise they would burn the cores of what is measured next.

    Raises:
        MeasureError: The number is not 1 or more.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _count(count)
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def environment(count: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables with which a new process takes this many threads in all libraries, JAX included.

    Args:
        count: Threads.
        base: Variables to start from; this process's if left out.

    Raises:
        MeasureError: The number is not 1 or more.
    """
    chosen = dict.fromkeys(_VARIABLES, str(_count(count)))
    return {**(os.environ if base is None else base), **chosen}


def _count(count: int) -> int:
    if type(count) is int and count >= 1:
        return count
    raise MeasureError("this is no number of threads", expected="1 or more", got=repr(count))
