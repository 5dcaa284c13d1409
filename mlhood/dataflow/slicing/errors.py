"""The error of this stage."""

from __future__ import annotations

from mlhood.errors import DataflowError


class SlicingError(DataflowError):
    """A convolution cannot be sliced as asked, or the caches are not known."""

    stage = "slicing"
