"""What can be wrong with what XLA is asked for."""

from __future__ import annotations

from mlhood.errors import MlhoodError


class XlaError(MlhoodError):
    """A function cannot be traced or compiled, or what XLA wrote about it cannot be read."""

    stage = "jaxlab"
