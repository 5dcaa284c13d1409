"""The store of submissions beside a gradebook, in which a file is named after the hash of its content."""

from __future__ import annotations

from pathlib import Path

from nbformat import NotebookNode

from mlhood.errors import NotebookError
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.notebooks.notebook import read


def stored_path(store: Path, submission: SubmittedFile) -> Path:
    """Return the path of a submission's copy."""
    return store / f"{submission.sha256}.ipynb"


def stored_notebook(store: Path, submission: SubmittedFile) -> NotebookNode | None:
    """Return a submitted notebook, or None if there is none that can be read."""
    if not submission.sha256:
        return None
    try:
        return read(stored_path(store, submission))
    except NotebookError:
        return None
