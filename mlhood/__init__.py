"""Machine Learning under the hood: five graded notebooks and the package they import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.compiler.compile import compile
    from mlhood.grading.student.check import check, progress

__all__ = ["check", "compile", "progress"]

_MODULES = {
    "check": "mlhood.grading.student.check",
    "compile": "mlhood.compiler.compile",
    "progress": "mlhood.grading.student.check",
}


def __getattr__(name: str) -> Any:
    """Import what notebooks call lazily, so that importing the package is cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mlhood' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
