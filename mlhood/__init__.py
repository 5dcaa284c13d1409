"""Machine Learning under the hood: five graded notebooks and the package they import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.grading.student import check, progress

__all__ = ["check", "progress"]


def __getattr__(name: str) -> Any:
    """Load the notebook's calls when they are first used, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'mlhood' has no attribute {name!r}")
    from mlhood.grading import student

    return getattr(student, name)
