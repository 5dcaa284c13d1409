"""Machine Learning under the hood: five graded notebooks and the package they import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.compiler.compile import compile
    from mlhood.grading.student.check import check, hint, progress

__all__ = ["check", "compile", "hint", "progress"]

_MODULES = {
    "check": "mlhood.grading.student.check",
    "compile": "mlhood.compiler.compile",
    "hint": "mlhood.grading.student.check",
    "progress": "mlhood.grading.student.check",
}


def __getattr__(name: str) -> Any:
    """Import what notebooks call lazily, so that importing the package is cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mlhood' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if name == "compile" or not _MODULES[name].startswith(str(error.name)):
            raise
        return _no_checks


def _no_checks(*arguments: Any, **options: Any) -> None:
    """Stand in for `check`, `hint` and `progress` where a submission runs, which has no access to checks."""
    print("mlhood.check, mlhood.hint and mlhood.progress do nothing here: the grader runs the checks itself")
