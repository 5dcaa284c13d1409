"""The number of threads that libraries use: set where it can change at run time, explained where it cannot.

BLAS and OpenMP (threadpoolctl), torch, Numba and our own kernels can be set at any time. ONNX Runtime is configured
when a session is created (`session_options`), JAX when its process starts (`environment`).
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
    """A number of threads, and the libraries it has been applied to.

    Args:
        count: Number of threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._applied: set[str] = set()
        self._restore = ExitStack()

    def apply(self) -> None:
        """Set all libraries that are loaded by now, including those that are set already."""
        for name, apply in _LIBRARIES.items():
            if hasattr(sys.modules.get(name), "__file__"):  # not where a stub replaces it
                restore = apply(sys.modules[name], self.count)
                if name not in self._applied:
                    self._restore.callback(restore)
                self._applied.add(name)
        from threadpoolctl import threadpool_limits

        # BLAS and OpenMP last: torch and NumPy may have loaded their own libraries
        self._restore.enter_context(threadpool_limits(self.count))

    def restore(self) -> None:
        """Restore the numbers of threads that all libraries had before."""
        self._restore.close()

    def notes(self) -> list[str]:
        """Return the libraries in this process that choose their number of threads, and how to configure them."""
        notes = []
        if "onnxruntime" in sys.modules:
            notes.append(f"ONNX Runtime: create sessions with `session_options({self.count})`")
        if "jax" in sys.modules and os.environ.get("PJRT_NPROC", os.environ.get("NPROC")) != str(self.count):
            notes.append(f"JAX: start the process with the variables of `environment({self.count})`")
        return notes


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


# module -> setter that returns the function to restore it; looked up among loaded modules, so nothing is imported here
_LIBRARIES: dict[str, Callable[[Any, int], Callable[[], object]]] = {
    "torch": _torch,
    "numba": _numba,
    "mlhood.kernels.parallel": _kernels,
}


@contextmanager
def threads(count: int) -> Iterator[Threads]:
    """Set the threads of BLAS, OpenMP, torch, Numba and our kernels, as far as they are loaded; restore them after.

    The setting of our kernels is that of the calling thread; the others hold for the whole process.

    Yields:
        The setting: `apply()` sets what was loaded since; `notes()` explains how to configure other libraries.

    Raises:
        MeasureError: The number is less than 1, or more than Numba was started with.
    """
    setting = Threads(_check_count(count))
    try:
        setting.apply()
        yield setting
    finally:
        setting.restore()


def session_options(count: int) -> Any:
    """Return `onnxruntime.SessionOptions` for an ONNX Runtime session with this number of threads.

    Its threads stop spinning when a run ends: otherwise they would take processor time from what is measured next.

    Raises:
        MeasureError: The number is less than 1.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _check_count(count)
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def environment(count: int, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables with which a new process uses this number of threads in all libraries, also JAX.

    Args:
        count: Number of threads.
        base: Variables to start from; this process's by default.

    Raises:
        MeasureError: The number is less than 1.
    """
    variables = dict.fromkeys(_VARIABLES, str(_check_count(count)))
    return {**(os.environ if base is None else base), **variables}


def _check_count(count: int) -> int:
    if type(count) is int and count >= 1:
        return count
    raise MeasureError("invalid number of threads", expected="1 or more", got=repr(count))
