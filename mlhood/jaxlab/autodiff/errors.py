"""What can be wrong with what is to be differentiated."""

from __future__ import annotations

from mlhood.errors import MlhoodError


class AutodiffError(MlhoodError):
    """A function cannot be recorded or differentiated."""

    stage = "jaxlab"
