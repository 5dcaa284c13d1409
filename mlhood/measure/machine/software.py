"""The software that a measurement depends on: versions of libraries, without importing them, and NumPy's BLAS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from mlhood.measure.machine.facts import Blas

# libraries whose version can affect a time or a result
LIBRARIES = (
    "numpy",
    "torch",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "jax",
    "jaxlib",
    "numba",
    "llvmlite",
    "scikit-learn",
    "pandas",
    "netron",
    "mlhood",
)

# OpenBLAS's name of its kernels, in lower case -> float32 lanes of their vectors
_KERNEL_LANES = {
    "prescott": 4,
    "nehalem": 4,
    "sandybridge": 8,
    "haswell": 8,
    "zen": 8,
    "skylakex": 16,
    "cooperlake": 16,
    "sapphirerapids": 16,
    "armv8": 4,
    "neoversen1": 4,
    "vortex": 4,
}


def versions() -> dict[str, str | None]:
    """Return the installed version of each library, None for one that is not installed."""
    return {name: _version(name) for name in LIBRARIES}


def numpy_blas() -> Blas:
    """Return NumPy's BLAS library, its version, threads and kernels; unknown without NumPy."""
    try:
        import numpy as np
        from threadpoolctl import threadpool_info
    except ImportError:
        return Blas()
    configured = np.show_config(mode="dicts") or {}
    return choose_blas(threadpool_info(), configured.get("Build Dependencies", {}).get("blas", {}))


def choose_blas(loaded: Iterable[Mapping[str, Any]], configured: Mapping[str, Any]) -> Blas:
    """Return the BLAS that NumPy uses among those loaded, else the one it was built with.

    Args:
        loaded: threadpoolctl's list; other packages (SciPy, torch) load their own BLAS.
        configured: NumPy's build configuration, the only source for Apple's Accelerate, whose threads are unknown.
    """
    candidates = [library for library in loaded if library.get("user_api") == "blas"]
    bundled = [library for library in candidates if "numpy" in str(library.get("filepath", "")).lower()]
    build_name = str(configured.get("name", "")).lower()
    same_kind = [library for library in candidates if library.get("internal_api", "?") in build_name]
    for library in bundled + same_kind:
        kernel = library.get("architecture")
        facts = library.get("internal_api"), library.get("version"), library.get("num_threads"), kernel
        return Blas(*facts, _KERNEL_LANES.get(str(kernel).lower()))
    return Blas(configured.get("name") or None, configured.get("version") or None)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
