"""Vector instruction sets: LLVM's features of the host, and how many float32 a register holds."""

from __future__ import annotations

from collections.abc import Mapping

from mlhood.measure.machine.facts import Vector

# LLVM's feature -> common name and float32 lanes of a register, widest first.
# Scalable vectors (SVE) have no fixed width; the generated code uses NEON on such a processor.
_SETS: dict[str, tuple[str, int | None]] = {
    "avx512f": ("AVX-512", 16),
    "avx2": ("AVX2", 8),
    "avx": ("AVX", 8),
    "sse4.2": ("SSE4.2", 4),
    "sse2": ("SSE2", 4),
    "neon": ("NEON", 4),
    "sve": ("SVE", None),
}
_ARM64 = {"aarch64", "arm64"}


def vector(features: Mapping[str, bool], architecture: str) -> Vector:
    """Return the vector sets among LLVM's host features.

    NEON is part of the 64-bit ARM architecture (Arm ARM, A1.5: Advanced SIMD), so it is implied.
    """
    present = {name for name, enabled in features.items() if enabled}
    if architecture.lower() in _ARM64:
        present.add("neon")
    sets = [_SETS[name] for name in _SETS if name in present]
    widths = [lanes for _, lanes in sets if lanes is not None]
    return Vector(tuple(name for name, _ in sets), max(widths, default=None))


def host_features() -> dict[str, bool]:
    """Return LLVM's features of the host; empty if they are unknown."""
    try:
        from llvmlite import binding

        return dict(binding.get_host_cpu_features())
    except (ImportError, OSError, RuntimeError):
        return {}


def host_name() -> str | None:
    """Return LLVM's name of the host's microarchitecture, such as `znver5` or `apple-m2`."""
    try:
        from llvmlite import binding

        name = binding.get_host_cpu_name()
    except (ImportError, OSError, RuntimeError):
        return None
    return name if name and name != "generic" else None
